//! Layouts in force, which every plan is compared with.

use crate::bytes::Bytes;
use crate::figures::Figures;
use crate::placement::{ClassPlacement, PlanPart};
use std::collections::BTreeMap;
use weft_core::{Component, Layout, Strip, TargetId};

/// The layout that the files of a group have, or that new ones would get.
#[derive(Clone, PartialEq, Debug)]
pub struct PresentLayout {
    layout: Layout,
    /// The form used in plan files.
    parts: Vec<PlanPart>,
    /// This layout over whole classes; `None` if only some targets of a class take part.
    placement: Option<ClassPlacement>,
    /// Whether the files exist. New files can be cut to the capacity, existing ones have their place.
    is_new: bool,
}

impl PresentLayout {
    /// The layout of an existing file. `class_of` returns the index of a target's class in the figures. Targets are
    /// renumbered from the first of their class, as the model places all files.
    ///
    /// # Errors
    /// Names a target of no class, or a class with fewer targets than the file uses.
    pub fn of_file(
        layout: &Layout,
        figures: &Figures,
        class_of: impl Fn(TargetId) -> Option<usize>,
    ) -> Result<Self, String> {
        let numbers = figures.targets();
        let mut components = Vec::new();
        let mut parts = Vec::new();
        for component in layout.components() {
            let mut taken = vec![0usize; figures.classes.len()];
            let mut stripes: BTreeMap<String, Bytes> = BTreeMap::new();
            let mut strips = Vec::new();
            for strip in &component.strips {
                let class = class_of(strip.target)
                    .ok_or_else(|| format!("{} is of no class of the figures", strip.target))?;
                let name = &figures.classes[class].name;
                let target = numbers[class].get(taken[class]);
                let target =
                    *target.ok_or_else(|| format!("a file uses more targets than class {name} has"))?;
                taken[class] += 1;
                stripes.entry(name.clone()).or_insert(Bytes(strip.stripe_size.0));
                strips.push(Strip { target, stripe_size: strip.stripe_size });
            }
            let in_part = figures
                .classes
                .iter()
                .zip(&taken)
                .filter(|(class, taken)| **taken > 0 && **taken < class.targets as usize);
            parts.push(PlanPart {
                from: Bytes(component.start.0),
                to: component.end.map(|end| Bytes(end.0)),
                stripes,
                targets: in_part.map(|(class, taken)| (class.name.clone(), *taken as u32)).collect(),
            });
            components.push(Component { strips, ..component.clone() });
        }
        let layout = Layout::from_components(components).map_err(|error| error.to_string())?;
        let placement = ClassPlacement::from_plan(&parts, figures).ok();
        // Strips of one class may differ in their size, which a placement cannot express.
        let placement =
            placement.filter(|placement| reservation(&placement.on_figures(figures)) == reservation(&layout));
        Ok(Self { layout, parts, placement, is_new: false })
    }

    /// Marks the layout as one that new files would get, which is cut to the capacity.
    #[must_use]
    pub fn for_new_files(mut self) -> Self {
        self.is_new = true;
        self
    }

    /// The layout of new files over whole classes.
    pub fn new_files(placement: ClassPlacement, figures: &Figures) -> Self {
        let (layout, parts) = (placement.on_figures(figures), placement.to_plan(figures));
        Self { layout, parts, placement: Some(placement), is_new: true }
    }

    /// Stripes of `stripe` bytes over all targets, for new files.
    pub fn default_of(figures: &Figures, stripe: u64) -> Self {
        Self::new_files(ClassPlacement::whole(vec![stripe; figures.classes.len()]), figures)
    }

    /// Cuts the layout of new files to the capacity; see [`ClassPlacement::within`].
    #[must_use]
    pub(super) fn within(self, figures: &Figures, capacities: &[u64], extent: u64, files: u64) -> Self {
        match self.placement {
            Some(placement) if self.is_new => {
                Self::new_files(placement.within(figures, capacities, extent, files), figures)
            }
            _ => self,
        }
    }

    /// The layout over the targets of the figures.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The form used in plan files.
    pub fn parts(&self) -> &[PlanPart] {
        &self.parts
    }

    /// The layout over whole classes, even if the file uses only some targets of a class.
    ///
    /// # Panics
    /// Never: the parts without their numbers of targets are a placement.
    pub fn over_classes(&self, figures: &Figures) -> ClassPlacement {
        self.placement.clone().unwrap_or_else(|| {
            let whole = |part: &PlanPart| PlanPart { targets: BTreeMap::new(), ..part.clone() };
            let parts: Vec<PlanPart> = self.parts.iter().map(whole).collect();
            ClassPlacement::from_plan(&parts, figures).expect("a file's layout covers it")
        })
    }

    /// The layout over whole classes, if it is one.
    pub fn placement(&self) -> Option<&ClassPlacement> {
        self.placement.as_ref()
    }
}

/// Stripe sizes of each component, by target.
fn reservation(layout: &Layout) -> Vec<BTreeMap<TargetId, u64>> {
    let strips = |component: &Component| {
        component.strips.iter().map(|strip| (strip.target, strip.stripe_size.0)).collect()
    };
    layout.components().iter().map(strips).collect()
}
