//! Storage encoding of rules, compatible with earlier versions.
//!
//! | field | contents |
//! | --- | --- |
//! | rules | pattern, preferences and layout by class of each rule |
//! | compressions | [`CompressionSetting::encode`] of each rule, or 0; absent if no rule has a setting |

use super::{LayoutChoice, RuleRow, RulesRow};
use serde::{Deserialize, Serialize, Serializer};
use weft_core::{ClassLayout, CompressionSetting, Pattern};

/// Decoded form.
#[derive(Deserialize)]
pub(super) struct Stored {
    rules: Vec<StoredRule>,
    #[serde(deserialize_with = "super::or_end")]
    compressions: Vec<u16>,
}

#[derive(Deserialize)]
struct StoredRule {
    pattern: Pattern,
    choice: LayoutChoice,
    by_class: Option<ClassLayout>,
}

/// Encoded form, borrowed.
#[derive(Serialize)]
struct Storing<'a> {
    rules: Vec<StoringRule<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compressions: Vec<u16>,
}

#[derive(Serialize)]
struct StoringRule<'a> {
    pattern: &'a Pattern,
    choice: &'a LayoutChoice,
    by_class: &'a Option<ClassLayout>,
}

impl TryFrom<Stored> for RulesRow {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        let Stored { rules, mut compressions } = stored;
        match compressions.len() {
            0 => compressions.resize(rules.len(), 0),
            count if count == rules.len() => {}
            _ => return Err("another number of compression settings than of rules"),
        }
        let rule = |(StoredRule { pattern, choice, by_class }, code): (StoredRule, u16)| {
            let compression = match code {
                0 => None,
                code => Some(CompressionSetting::try_from(code)?),
            };
            Ok(RuleRow { pattern, choice, by_class, compression })
        };
        Ok(Self { rules: rules.into_iter().zip(compressions).map(rule).collect::<Result<_, _>>()? })
    }
}

impl Serialize for RulesRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let code = |rule: &RuleRow| rule.compression.map_or(0, CompressionSetting::encode);
        let has_any = self.rules.iter().any(|rule| rule.compression.is_some());
        let rules = self.rules.iter().map(|rule| {
            let RuleRow { pattern, choice, by_class, compression: _ } = rule;
            StoringRule { pattern, choice, by_class }
        });
        let storing = Storing {
            rules: rules.collect(),
            compressions: if has_any { self.rules.iter().map(code).collect() } else { Vec::new() },
        };
        storing.serialize(serializer)
    }
}
