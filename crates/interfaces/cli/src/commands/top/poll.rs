//! Asks servers for their activity, each in bounded time.

use super::rates::{Rates, Replies};
use crate::commands::session::{Weft, why};
use crate::failure::without_numbers;
use std::collections::BTreeMap;
use weft_core::{FileId, Nanos, ServerId};
use weft_env::real::block_on;
use weft_wire::activity::Activity;
use weft_wire::meta::{KnownPath, PATHS_MAX};

/// Time after which a server without a reply counts as down.
pub const REPLY_DEADLINE: Nanos = Nanos::from_ms(2500);

/// Reply of a server, or why there is none.
pub type Reply = Result<Activity, String>;

/// Latest two replies of each server.
pub struct Observed {
    names: Vec<String>,
    before: Vec<Option<Activity>>,
    latest: Vec<Option<Reply>>,
}

impl Observed {
    /// Begins without replies.
    pub fn new(weft: &Weft) -> Self {
        let names: Vec<_> = weft.cluster.numbered().map(|(_, server)| server.name.clone()).collect();
        Self {
            before: names.iter().map(|_| None).collect(),
            latest: names.iter().map(|_| None).collect(),
            names,
        }
    }

    /// Adds a reply of the server with an index.
    pub fn add(&mut self, index: usize, reply: Reply) {
        // After a failure, rates begin again with two new replies.
        self.before[index] = self.latest[index].take().and_then(Result::ok);
        self.latest[index] = Some(reply);
    }

    /// Whether a server has answered.
    pub fn has_answer(&self) -> bool {
        self.latest.iter().flatten().any(Result::is_ok)
    }

    /// Rates between the latest two replies of each server.
    pub fn rates(&self) -> Rates {
        let replies =
            self.names.iter().zip(&self.before).zip(&self.latest).map(|((name, before), latest)| {
                let after = match latest {
                    Some(Ok(activity)) => Ok(activity),
                    Some(Err(why)) => Err(why.as_str()),
                    None => Err("no answer yet"),
                };
                Replies { name, before: before.as_ref(), after }
            });
        Rates::of(replies)
    }
}

/// Asks a server.
pub fn ask(weft: &Weft, server: ServerId) -> Reply {
    block_on(weft.client.activity(server)).map_err(|error| match &error {
        weft_client::Error::Unreachable(unreachable) => without_numbers(&unreachable.cause),
        _ => why(&error),
    })
}

/// Asks all servers at the same time.
pub fn ask_all(weft: &Weft) -> Vec<Reply> {
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            weft.cluster.numbered().map(|(id, _)| scope.spawn(move || ask(weft, id))).collect();
        let failed = || Err("asking it failed: see above".to_owned());
        asked.into_iter().map(|thread| thread.join().unwrap_or_else(|_| failed())).collect()
    })
}

/// Asks the metadata server for the paths of files. Files without an answer are missing.
pub fn paths(weft: &Weft, files: &[FileId]) -> BTreeMap<FileId, KnownPath> {
    let mut found = BTreeMap::new();
    for some in files.chunks(PATHS_MAX) {
        // The list of servers shows whether the metadata server answers.
        let Ok(paths) = block_on(weft.client.paths(some.to_vec())) else { break };
        found.extend(some.iter().copied().zip(paths));
    }
    found
}
