//! From a plan to the targets of a cluster that runs.
//!
//! A plan speaks of classes as the cluster had them that was planned for. Another cluster may call them otherwise, have more or
//! fewer targets of one, or none: the first is said by whoever applies the plan, the second changes nothing in the layout and is
//! told, the third is an error.

use crate::figures::Figures;
use crate::placing::{PartFile, Placing};
use crate::plan::{Plan, Rule};
use std::collections::BTreeMap;
use weft_core::parts::RoomLeft;
use weft_core::{ByteLen, Candidate, ClassLayout, ClassPart, FileId, FileOffset, Layout};

/// Names that classes have in the cluster that runs, by those in the plan; the others are called alike.
pub type Renamed = BTreeMap<String, String>;

/// Why a layout of a plan cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LiveError {
    /// The plan contradicts itself.
    #[error("the plan's layout for {path}: {why}")]
    Layout {
        /// The rule's path.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A class that the cluster does not have.
    #[error("no target here is of class {class:?}, which the plan uses for {path}; there are {known}")]
    Class {
        /// The rule's path.
        path: String,
        /// The class, as it is called here.
        class: String,
        /// Those that there are.
        known: String,
    },
}

impl Plan {
    /// The layout of a rule by class, as a cluster takes it, and what should be known of it there, in sentences.
    ///
    /// # Errors
    /// A class that none of `available` has; a layout that cannot be.
    pub fn by_class(
        &self,
        rule: &Rule,
        available: &[Candidate<'_>],
        renamed: &Renamed,
    ) -> Result<(ClassLayout, Vec<String>), LiveError> {
        let wrong = |why: String| LiveError::Layout { path: rule.path.0.clone(), why };
        // A file that outgrows what was traced goes on where there is room, whoever planned.
        let placing = Placing::read(&rule.layout, &self.cluster).map_err(wrong)?;
        let placing = placing.bounded(&self.cluster, rule.extent.0);
        let layout = of_placing(&placing, &self.cluster, renamed).map_err(wrong)?;
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

    /// The layout of `file` at `path` on the targets of a cluster, if a rule of the plan is for it. `left` is what targets with
    /// limited room have left; see [`ClassLayout::place`] for order, rotation and what becomes of parts without room.
    ///
    /// # Errors
    /// As [`by_class`](Self::by_class).
    pub fn on_targets(
        &self,
        path: &str,
        available: &[Candidate<'_>],
        renamed: &Renamed,
        left: &RoomLeft,
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

/// Parts of a plan as a layout by class; `figures` is the cluster that was planned for, whose order of classes is kept.
///
/// # Errors
/// What is wrong with them, in a sentence.
pub fn class_layout(parts: &[PartFile], figures: &Figures, renamed: &Renamed) -> Result<ClassLayout, String> {
    of_placing(&Placing::read(parts, figures)?, figures, renamed)
}

fn of_placing(placing: &Placing, figures: &Figures, renamed: &Renamed) -> Result<ClassLayout, String> {
    let part = |part: &crate::Part| {
        let taking = part.stripes.iter().zip(&figures.classes).filter(|(size, _)| **size > 0);
        let named = |class: &String| renamed.get(class).unwrap_or(class).clone();
        ClassPart {
            end: part.end.map(FileOffset),
            stripes: taking.map(|(size, class)| (named(&class.name), ByteLen(*size))).collect(),
        }
    };
    ClassLayout::new(placing.parts.iter().map(part).collect()).map_err(|error| error.to_string())
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
    fn where_the_cluster_is_the_one_planned_for_the_layout_is_the_plan_s() {
        let plan = planned();
        let here = cluster(&[("hdd", 3), ("ssd", 2)]);
        let found = plan.on_targets("/run7/out.1", &here, &Renamed::new(), &RoomLeft::new(), FileId(0));
        let layout = found.expect("fits").expect("a rule");
        let placing = Placing::read(&plan.rules[0].layout, &plan.cluster).expect("a layout");
        let targets = [vec![TargetId(0), TargetId(1), TargetId(2)], vec![TargetId(3), TargetId(4)]];
        assert_eq!(layout, placing.layout(&targets).expect("a layout"));
        let other = plan.on_targets("/other", &here, &Renamed::new(), &RoomLeft::new(), FileId(0));
        assert_eq!(other, Ok(None));
        // The plan keeps to its room by itself.
        assert!(layout.promises().iter().all(|(target, bytes)| target.0 < 3 || bytes.0 <= 1 << 20));
    }

    #[test]
    fn no_part_over_limited_room_is_without_an_end() {
        let mut plan = planned();
        let all = crate::Placing::whole(vec![65_536, 65_536]).written(&plan.cluster);
        plan.rules[0].layout = all;
        let here = cluster(&[("hdd", 3), ("ssd", 2)]);
        let (layout, _) = plan.by_class(&plan.rules[0], &here, &Renamed::new()).expect("fits");
        let [first, last] = layout.parts() else { panic!("{layout:?}") };
        assert!(first.end.is_some_and(|end| end.0 >= plan.rules[0].extent.0), "{layout:?}");
        assert_eq!(last.stripes, [("hdd".to_owned(), ByteLen(65_536))]);
    }

    #[test]
    fn more_and_fewer_targets_are_told_and_a_missing_class_refused() {
        let plan = planned();
        let rule = &plan.rules[0];
        let (layout, notes) =
            plan.by_class(rule, &cluster(&[("hdd", 6), ("ssd", 1)]), &Renamed::new()).expect("fits");
        assert!(layout.classes().contains(&"ssd"), "{layout:?}");
        assert!(notes.iter().any(|note| note.contains("2 targets of class ssd; 1 here")), "{notes:?}");
        let other = cluster(&[("hdd", 3), ("nvme", 2)]);
        let error = plan.by_class(rule, &other, &Renamed::new()).expect_err("no ssd").to_string();
        assert!(error.contains("\"ssd\"") && error.contains("hdd, nvme"), "{error}");
        let renamed = Renamed::from([("ssd".to_owned(), "nvme".to_owned())]);
        let (layout, notes) = plan.by_class(rule, &other, &renamed).expect("renamed");
        assert!(layout.classes().contains(&"nvme") && notes.is_empty(), "{notes:?}");
    }
}
