//! The twin: simulated clusters that run the real client and the real servers under virtual time.
