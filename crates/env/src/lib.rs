//! The seam between Weft and the world: clock, disk, network, randomness; real and simulated.
