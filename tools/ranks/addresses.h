// Addresses by which ranks on several machines reach each other.
//
// A name may lead to other addresses on one machine than on another: to IPv6 on one, to IPv4 on the
// other, to another interface; and on Debian a machine's own name is 127.0.1.1 in its /etc/hosts.
// So where ranks on other machines are expected, a name is not taken at its word: one listens at
// all addresses, and tells the others all those of the interface by which the store was reached, or
// that leads outwards where that is the loopback interface. An address that was given as such
// ("10.0.0.1", "127.0.0.1", "localhost") stays.
//
// Errors: InputError for what is no address, or unknown, or not of this machine. Thread safety:
// pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo {

// Where the store of rank 0 listens that is to be reached as `host`, at this port.
std::string listening_address(const std::string& host, uint16_t port, bool other_machines);

// The addresses of this machine at which the other ranks, which reach the store as `host`, reach it
// in turn, the best first. `own`: this end of the connection with the store.
std::vector<std::string> own_addresses(const std::string& host, const std::string& own,
                                       bool other_machines);

}  // namespace rondo
