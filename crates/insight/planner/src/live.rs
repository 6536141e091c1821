//! Applies a plan to the targets of a running cluster.
//!
//! A plan names the classes of the cluster it was made for. The running cluster may differ:
//!
//! | difference | handling |
//! | --- | --- |
//! | a class has another name | the administrator supplies the new name ([`ClassRenames`]) |
//! | a class has more or fewer targets | same layout, with a note |
//! | a class is missing | error |

use crate::figures::Figures;
use crate::placement::{ClassPlacement, PlanPart};
use crate::plan::{Plan, Rule};
use std::collections::BTreeMap;
use weft_core::parts::SpaceLeft;
use weft_core::{ByteLen, Candidate, ClassLayout, ClassPart, FileId, FileOffset, Layout};

/// Class names of the running cluster by those in the plan. Classes that are not listed keep their names.
pub type ClassRenames = BTreeMap<String, String>;

/// Why a planned layout cannot be applied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LiveError {
    /// The plan is inconsistent.
    #[error("the plan's layout for {path}: {why}")]
    Layout {
        /// Path of the rule.
        path: String,
        /// The reason.
        why: String,
    },
    /// The cluster has no target of a class.
    #[error(
        "the cluster has no target of class {class:?}, which the plan uses for {path}; its classes are {known}"
    )]
    Class {
        /// Path of the rule.
        path: String,
        /// Name of the class in this cluster.
        class: String,
        /// Classes of this cluster.
        known: String,
    },
}

impl Plan {
    /// Converts a rule's layout to the classes of a cluster. Also returns notes for the user.
    ///
    /// # Errors
    /// A class without a target in `available`, or an invalid layout.
    pub fn by_class(
        &self,
        rule: &Rule,
        available: &[Candidate<'_>],
        renamed: &ClassRenames,
    ) -> Result<(ClassLayout, Vec<String>), LiveError> {
        let wrong = |why: String| LiveError::Layout { path: rule.path.0.clone(), why };
        // A file that outgrows its traced length continues on unlimited classes, whichever planner made the layout.
        let placement = ClassPlacement::from_plan(&rule.layout, &self.cluster).map_err(wrong)?;
        let placement = placement.bounded(&self.cluster, rule.extent.0);
        let layout = from_placement(&placement, &self.cluster, renamed).map_err(wrong)?;
        let mut notes = Vec::new();
        for class in layout.classes() {
            let here = available.iter().filter(|candidate| candidate.class == class).count() as u64;
            if here == 0 {
                let mut known: Vec<&str> = available.iter().map(|candidate| candidate.class).collect();
                known.sort_unstable();
                known.dedup();
                let (class, known) = (class.to_owned(), known.join(", "));
                return Err(LiveError::Class { path: rule.path.0.clone(), class, known });
            }
            let named = |planned: &str| renamed.get(planned).map_or(planned, String::as_str) == class;
            let of = self.cluster.classes.iter().filter(|planned| named(&planned.name));
            let planned: u64 = of.map(|planned| u64::from(planned.targets)).sum();
            if planned != here {
                notes.push(format!("planned for {planned} targets of class {class}; {here} here take part"));
            }
        }
        Ok((layout, notes))
    }

    /// The layout for `file` at `path` over concrete targets, if a rule matches. `left` is the free capacity of limited
    /// targets. [`ClassLayout::place`] defines the order of targets, the rotation of the first target, and the
    /// treatment of full targets.
    ///
    /// # Errors
    /// See [`by_class`](Self::by_class).
    pub fn on_targets(
        &self,
        path: &str,
        available: &[Candidate<'_>],
        renamed: &ClassRenames,
        left: &SpaceLeft,
        file: FileId,
    ) -> Result<Option<Layout>, LiveError> {
        let Some(rule) = self.rule(path) else { return Ok(None) };
        let (layout, _) = self.by_class(rule, available, renamed)?;
        let placed = layout.place(available, left, file);
        let wrong = |why: weft_core::PlacementError| LiveError::Layout {
            path: path.to_owned(),
            why: why.to_string(),
        };
        placed.map(Some).map_err(wrong)
    }
}

/// Converts the parts of a plan to a layout by class. `figures` describes the planned cluster and defines the order of
/// classes.
///
/// # Errors
/// Why the parts are invalid.
pub fn class_layout(
    parts: &[PlanPart],
    figures: &Figures,
    renamed: &ClassRenames,
) -> Result<ClassLayout, String> {
    from_placement(&ClassPlacement::from_plan(parts, figures)?, figures, renamed)
}

fn from_placement(
    placement: &ClassPlacement,
    figures: &Figures,
    renamed: &ClassRenames,
) -> Result<ClassLayout, String> {
    let part = |part: &crate::PlacementPart| {
        let taking = part.stripes.iter().zip(&figures.classes).filter(|(size, _)| **size > 0);
        let named = |class: &String| renamed.get(class).unwrap_or(class).clone();
        ClassPart {
            end: part.end.map(FileOffset),
            stripes: taking.map(|(size, class)| (named(&class.name), ByteLen(*size))).collect(),
        }
    };
    ClassLayout::new(placement.parts.iter().map(part).collect()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Options, plan};
    use crate::survey::{Limits, Survey};
    use crate::testing::hybrid;
    use weft_core::{Nanos, ServerId, TargetId};
    use weft_trace::{HostId, Level, Names, Operation, Rank, Record};

    fn planned() -> Plan {
        let mut names = Names::default();
        let file = names.file("/run7/out.1").expect("room for a name");
        let mut survey = Survey::new(&Limits::default());
        for n in 0..500u64 {
            let record = Record {
                rank: Rank((n % 8) as u32),
                host: HostId(0),
                file,
                op: Operation::Read,
                level: Level::Posix,
                collective: false,
                offset: FileOffset((n * 7919 % 500) * 65_536),
                len: ByteLen(65_536),
                start: Nanos(n * 1000),
                end: Nanos(n * 1000 + 5000),
            };
            survey.add(&record, &names);
        }
        let figures = hybrid((3, 10_000.0, 70.0), (2, 150.0, 400.0), Some(1 << 20));
        plan(&survey.finish(None), &figures, &Options::default()).expect("plans").plan
    }

    fn cluster(classes: &[(&'static str, u32)]) -> Vec<Candidate<'static>> {
        let all = classes.iter().flat_map(|(class, count)| (0..*count).map(|_| *class));
        let candidate =
            |(at, class)| Candidate { target: TargetId(at as u32), server: ServerId(at as u32), class };
        all.enumerate().map(candidate).collect()
    }

    #[test]
    fn the_planned_cluster_gets_the_planned_layout() {
        let plan = planned();
        let here = cluster(&[("hdd", 3), ("ssd", 2)]);
        let found = plan.on_targets("/run7/out.1", &here, &ClassRenames::new(), &SpaceLeft::new(), FileId(0));
        let layout = found.expect("fits").expect("a rule");
        let placement = ClassPlacement::from_plan(&plan.rules[0].layout, &plan.cluster).expect("a layout");
        let targets = [vec![TargetId(0), TargetId(1), TargetId(2)], vec![TargetId(3), TargetId(4)]];
        assert_eq!(layout, placement.layout(&targets).expect("a layout"));
        let other = plan.on_targets("/other", &here, &ClassRenames::new(), &SpaceLeft::new(), FileId(0));
        assert_eq!(other, Ok(None));
        // The plan keeps within its own capacity.
        assert!(layout.space_reservations().iter().all(|(target, bytes)| target.0 < 3 || bytes.0 <= 1 << 20));
    }

    #[test]
    fn every_part_over_a_limited_class_has_an_end() {
        let mut plan = planned();
        let all = crate::ClassPlacement::whole(vec![65_536, 65_536]).to_plan(&plan.cluster);
        plan.rules[0].layout = all;
        let here = cluster(&[("hdd", 3), ("ssd", 2)]);
        let (layout, _) = plan.by_class(&plan.rules[0], &here, &ClassRenames::new()).expect("fits");
        let [first, last] = layout.parts() else { panic!("{layout:?}") };
        assert!(first.end.is_some_and(|end| end.0 >= plan.rules[0].extent.0), "{layout:?}");
        assert_eq!(last.stripes, [("hdd".to_owned(), ByteLen(65_536))]);
    }

    #[test]
    fn other_target_counts_are_noted_and_a_missing_class_is_rejected() {
        let plan = planned();
        let rule = &plan.rules[0];
        let (layout, notes) =
            plan.by_class(rule, &cluster(&[("hdd", 6), ("ssd", 1)]), &ClassRenames::new()).expect("fits");
        assert!(layout.classes().contains(&"ssd"), "{layout:?}");
        assert!(notes.iter().any(|note| note.contains("2 targets of class ssd; 1 here")), "{notes:?}");
        let other = cluster(&[("hdd", 3), ("nvme", 2)]);
        let error = plan.by_class(rule, &other, &ClassRenames::new()).expect_err("no ssd").to_string();
        assert!(error.contains("\"ssd\"") && error.contains("hdd, nvme"), "{error}");
        let renamed = ClassRenames::from([("ssd".to_owned(), "nvme".to_owned())]);
        let (layout, notes) = plan.by_class(rule, &other, &renamed).expect("renamed");
        assert!(layout.classes().contains(&"nvme") && notes.is_empty(), "{notes:?}");
    }
}
