//! Which layout a file is moved to: the one that a new file of its name would get, as far as room goes.

use super::closed::Closed;
use super::fault::Outcome;
use super::layouts::Wish;
use super::namespace::inherited;
use super::op::{Core, Op};
use super::rules;
use super::tables::{inode, known_inode};
use super::walk::{Last, Walked};
use weft_core::parts::RoomLeft;
use weft_core::{FileId, Layout};
use weft_env::plants::{Plant, planted};
use weft_store::metadata::{Inode, LayoutChoice, Node, Snapshot};
use weft_wire::Errno;
use weft_wire::meta::{LayoutSpec, ROOT};

/// All that decides where a file goes, but for the room there is.
pub(super) struct Destination<'a> {
    core: &'a Core,
    file: FileId,
    has: Layout,
    wish: Wish,
    rule: Option<Wish>,
    directory: Option<LayoutChoice>,
    closed: Closed,
}

impl Op<'_> {
    /// Where `file`, which `walked` led to, is to go by `wish`.
    pub(super) fn destination(
        &self,
        s: &dyn Snapshot,
        walked: &mut Walked,
        (file, of): (FileId, &Inode),
        wish: &LayoutSpec,
    ) -> Outcome<Destination<'_>> {
        let Node::Regular { layout, .. } = &of.node else { return Err(Errno::EINVAL.into()) };
        let wish = Wish::from(wish);
        self.core.layouts.check(&wish)?;
        // As a new file of this name would get it.
        if walked.last != Last::Name {
            // Where it was made or last renamed, if that is there still.
            (walked.dir, walked.dir_inode) = match inode(s, of.parent)? {
                Some(dir) => (of.parent, dir),
                None => (ROOT, known_inode(s, ROOT)?),
            };
            walked.name.clone_from(&of.name);
        }
        let rule = match self.rule_for(s, walked.dir, &walked.dir_inode, &walked.name) {
            Err(_) if walked.last != Last::Name => None,
            rule => rule?,
        };
        // A file is not moved because one of its servers is down: its bytes could not be read.
        let mut closed = self.core.closed();
        closed.reopen_down(layout.objects().map(|(_, target)| target));
        Ok(Destination {
            core: self.core,
            file,
            has: layout.clone(),
            wish,
            rule: rule.as_ref().map(|found| rules::wish(found.rule())),
            directory: inherited(&walked.dir_inode),
            closed,
        })
    }
}

impl Destination<'_> {
    fn choose(&self, room: &RoomLeft) -> Outcome<Layout> {
        let (rule, directory) = (self.rule.as_ref(), self.directory.as_ref());
        self.core.layouts.choose(&self.wish, rule, directory, (room, &self.closed), self.file)
    }

    /// The layout that the file gets if the room of `besides` is free, too; the one that it has where it stays.
    ///
    /// Until it is moved it takes the room of both. So it may get less than it would as a new file; but where what it has is
    /// the wish with less room, it does not get less of that.
    pub(super) fn with(&self, s: &dyn Snapshot, besides: Option<&Layout>) -> Outcome<Layout> {
        let mut room = self.core.left(s)?;
        besides.into_iter().for_each(|layout| add(&mut room, layout));
        let mut if_new = room.clone();
        add(&mut if_new, &self.has);
        let wanted = self.choose(&if_new)?;
        if wanted == self.has {
            return Ok(wanted);
        }
        let possible = self.choose(&room)?;
        let is_more = self.core.rooms.promised(&possible) > self.core.rooms.promised(&self.has);
        if possible != wanted && !is_more && !planted(Plant::LessRoom) {
            let whole = self.choose(&RoomLeft::new())?;
            if self.has.is_short_of(&whole) {
                return Ok(self.has.clone());
            }
        }
        if possible != self.has {
            self.core.rooms.require(s, &possible, besides)?;
        }
        Ok(possible)
    }
}

/// Room that would be free without this layout.
fn add(room: &mut RoomLeft, layout: &Layout) {
    for (target, bytes) in layout.promises() {
        room.entry(target).and_modify(|left| left.0 = left.0.saturating_add(bytes.0));
    }
}
