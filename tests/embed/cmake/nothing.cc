// Links what trains and reads recordings and images.
#include <rondo/audio.h>
#include <rondo/image.h>
#include <rondo/trainer.h>

int main() { return sizeof(rondo::TrainerOptions) > 0 ? 0 : 1; }
