//! A session that holds one lock, so that the lock can outlive the session of the process that acquired it.

use super::connect::client;
use super::{Backend, File};
use crate::errno::Res;
use weft_client::Client;
use weft_env::real::RealEnv;

/// Open file in a dedicated session. Dropping it closes the file and ends the session and its lock.
pub struct LockSession {
    file: File,
    client: Client<RealEnv>,
}

impl LockSession {
    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Closes this process's connections without notifying the servers: another process continues to use them.
    pub fn leave(self) {
        drop(self.client.after_fork_in_child());
    }
}

impl Backend {
    /// Opens the file that [`File::token`] describes, in a dedicated session.
    pub fn lock_session(&self, token: &[u8], text: &[u8]) -> Res<LockSession> {
        let client = client(&self.cluster, &self.identity)?;
        let file = File::direct(self.adopt_in(&client, token, text)?);
        Ok(LockSession { file, client })
    }
}
