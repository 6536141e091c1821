//! Under which capability an exchange with data servers goes, and when it is repeated under a fresh one.

use crate::append::Turn;
use crate::core::Core;
use crate::data::Part;
use crate::error::Result;
use crate::exchange::Item;
use crate::file::{Home, State, another_home};
use crate::write::{expired, finish};
use weft_env::Env;
use weft_wire::Capability;

/// The capability of all exchanges of one read or write.
pub(crate) struct Under {
    cap: Option<Capability>,
    /// No fresh one is asked for any more.
    is_last: bool,
}

impl Under {
    /// That of the file, and once a fresh one when its time is over; in an append that of its turn alone: a fresh one would
    /// pass a fence that is to keep this very write away.
    pub(crate) fn of(turn: Option<&Turn>) -> Self {
        Self { cap: turn.map(|turn| turn.cap), is_last: turn.is_some() }
    }

    pub(crate) async fn cap<E: Env>(&mut self, state: &State<E>, home: &Home<E>) -> Result<Capability> {
        let cap = match self.cap {
            Some(cap) if cap.file == home.data => cap,
            Some(_) => return Err(another_home()),
            None => state.cap_in(home).await?,
        };
        self.cap = Some(cap);
        Ok(cap)
    }

    /// What an exchange came to; `Ok` also when it is to be repeated under another capability.
    pub(crate) async fn after<E: Env>(&mut self, state: &State<E>, items: Vec<Item>) -> Result<()> {
        match finish(items) {
            Err(error) if expired(&error) && !self.is_last => {
                (self.cap, self.is_last) = (None, true);
                state.renew().await.map(drop)
            }
            result => result,
        }
    }
}

/// Which of `parts` something is left of, each with its item of the next exchange.
pub(crate) fn unfinished<E: Env>(core: &Core<E>, parts: &[Part]) -> Result<(Vec<usize>, Vec<Item>)> {
    let open: Vec<usize> = (0..parts.len()).filter(|&part| !parts[part].is_complete()).collect();
    let mut items = Vec::with_capacity(open.len());
    for &part in &open {
        items.push(Item::new(core.route(parts[part].sub.target)?));
    }
    Ok((open, items))
}
