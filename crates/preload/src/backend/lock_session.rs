//! A session that holds one lock, so that the lock can outlive the session of the process that took it.

use super::connect::client;
use super::{Backend, File};
use crate::errno::Res;
use weft_client::Client;
use weft_env::real::RealEnv;

/// One open file in a session of its own. Dropping it closes the file and ends the session, and with it the lock.
pub struct LockSession {
    file: File,
    client: Client<RealEnv>,
}

impl LockSession {
    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Closes this process's connections without a word to the servers: another process goes on with them.
    pub fn leave(self) {
        drop(self.client.after_fork_in_child());
    }
}

impl Backend {
    /// Opens what [`File::token`] described, in a session of its own.
    pub fn lock_session(&self, token: &[u8]) -> Res<LockSession> {
        let client = client(&self.cluster)?;
        let file = super::names::adopted(&client, token)?;
        Ok(LockSession { file, client })
    }
}
