//! Chooses the layout to which a file is moved: the one that a new file of its name would get, within the free space.

use super::closed_targets::ClosedTargets;
use super::fault::Outcome;
use super::layouts::LayoutRequest;
use super::namespace::inherited;
use super::op::{Core, Op};
use super::rules;
use super::tables::{inode, known_inode};
use super::walk::{LastComponent, Walked};
use weft_core::parts::SpaceLeft;
use weft_core::{FileId, Layout};
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::metadata::{Inode, LayoutChoice, Node, Snapshot};
use weft_wire::Errno;
use weft_wire::meta::{LayoutSpec, ROOT};

/// Everything that decides the new layout of a file, except free space.
pub(super) struct Destination<'a> {
    core: &'a Core,
    file: FileId,
    has: Layout,
    request: LayoutRequest,
    rule: Option<LayoutRequest>,
    directory: Option<LayoutChoice>,
    closed: ClosedTargets,
}

impl Op<'_> {
    /// Prepares the choice for `file`, to which `walked` led.
    pub(super) fn destination(
        &self,
        s: &dyn Snapshot,
        walked: &mut Walked,
        (file, of): (FileId, &Inode),
        request: &LayoutSpec,
    ) -> Outcome<Destination<'_>> {
        let Node::Regular { layout, .. } = &of.node else { return Err(Errno::EINVAL.into()) };
        let request = LayoutRequest::from(request);
        self.core.layouts.check(&request)?;
        // A moved file gets the layout that a new file of its name would get.
        if walked.last != LastComponent::Name {
            // Name under which it was created or last renamed, if that directory still exists.
            (walked.dir, walked.dir_inode) = match inode(s, of.parent)? {
                Some(dir) => (of.parent, dir),
                None => (ROOT, known_inode(s, ROOT)?),
            };
            walked.name.clone_from(&of.name);
        }
        let rule = match self.rule_for(s, walked.dir, &walked.dir_inode, &walked.name) {
            Err(_) if walked.last != LastComponent::Name => None,
            rule => rule?,
        };
        // A server that is down is no reason to move a file away: its bytes could not be read.
        let mut closed = self.core.closed();
        closed.reopen_down(layout.objects().map(|(_, target)| target));
        Ok(Destination {
            core: self.core,
            file,
            has: layout.clone(),
            request,
            rule: rule.as_ref().map(|found| rules::request(found.rule())),
            directory: inherited(&walked.dir_inode),
            closed,
        })
    }
}

impl Destination<'_> {
    fn choose(&self, space: &SpaceLeft) -> Outcome<Layout> {
        let (rule, directory) = (self.rule.as_ref(), self.directory.as_ref());
        self.core.layouts.choose(&self.request, rule, directory, (space, &self.closed), self.file)
    }

    /// Layout that the file gets if the space of `besides` is free too. Returns its present layout if it stays.
    ///
    /// During the move the file occupies the space of both layouts, so it may get less than a new file would. If its
    /// present layout is the wanted one with less space, it does not get less than that.
    pub(super) fn with(&self, s: &dyn Snapshot, besides: Option<&Layout>) -> Outcome<Layout> {
        let mut space = self.core.available_space(s)?;
        besides.into_iter().for_each(|layout| add(&mut space, layout));
        let mut if_new = space.clone();
        add(&mut if_new, &self.has);
        let wanted = self.choose(&if_new)?;
        if wanted == self.has {
            return Ok(wanted);
        }
        let possible = self.choose(&space)?;
        let is_more = self.core.reservations.reserved(&possible) > self.core.reservations.reserved(&self.has);
        if possible != wanted && !is_more && !is_seeded(Mutant::ReducedReservation) {
            let whole = self.choose(&SpaceLeft::new())?;
            if self.has.is_short_of(&whole) {
                return Ok(self.has.clone());
            }
        }
        if possible != self.has {
            self.core.reservations.require(s, &possible, besides)?;
        }
        Ok(possible)
    }
}

/// Adds the space that a layout reserves to the free space.
fn add(space: &mut SpaceLeft, layout: &Layout) {
    for (target, bytes) in layout.space_reservations() {
        space.entry(target).and_modify(|left| left.0 = left.0.saturating_add(bytes.0));
    }
}
