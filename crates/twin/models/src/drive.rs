//! Interface between the block layer and a device: commands on a linear address space.

/// Kind of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Read,
    Write,
    /// Moves the device's write cache to the medium.
    Flush,
}

/// A command. Addresses and lengths are in bytes and multiples of 512.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Command {
    /// Chosen by the block layer, and returned at the end.
    pub id: u64,
    pub verb: Verb,
    pub at: u64,
    pub len: u64,
}

impl Command {
    pub fn end(&self) -> u64 {
        self.at + self.len
    }
}

/// A device that processes commands. The caller advances it to every event in order.
pub(crate) trait Drive: Send {
    /// Whether the device's queue accepts another command.
    fn has_room(&self) -> bool;

    /// Submits a command at `now`.
    fn submit(&mut self, now: u64, command: Command);

    /// Returns the time of the next event.
    fn next_event(&self) -> Option<u64>;

    /// Advances to `now` and appends the commands that have ended.
    fn advance(&mut self, now: u64, done: &mut Vec<u64>);

    /// Returns the capacity in bytes.
    fn capacity(&self) -> u64;
}
