// Addresses by which ranks on several machines reach each other.
//
// On Debian a machine's own name is 127.0.1.1 in its /etc/hosts. So where ranks on other machines
// are expected, a name that means the loopback interface here is not taken at its word: one listens
// at all interfaces, and tells the others the address that leads outwards. A loopback address that
// was given as such ("127.0.0.1", "localhost") stays.
//
// Errors: InputError for what is no address, or unknown. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace rondo {

// Where the store of rank 0 listens that is to be reached as `host`.
std::string listening_address(const std::string& host, bool other_machines);

// The address of this machine from which `host` is reached: what the other ranks, which reach the
// same host, can reach in turn.
std::string own_address(const std::string& host, uint16_t port, bool other_machines);

}  // namespace rondo
