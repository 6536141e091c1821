//! What the block layer asks of a device: whole commands on a line of bytes.

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Read,
    Write,
    /// What the device's memory holds goes to the medium.
    Flush,
}

/// One command. Addresses and lengths are in bytes, multiples of 512.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Command {
    /// Chosen by the block layer; comes back at the end.
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

/// A device that serves commands. The caller moves it on at every event, in order.
pub(crate) trait Drive: Send {
    /// Whether its queue takes another command.
    fn has_room(&self) -> bool;

    /// Takes a command at `now`.
    fn submit(&mut self, now: u64, command: Command);

    /// When something happens next.
    fn next_event(&self) -> Option<u64>;

    /// Moves on to `now` and appends the commands that have ended.
    fn advance(&mut self, now: u64, done: &mut Vec<u64>);

    /// Its size in bytes.
    fn capacity(&self) -> u64;
}
