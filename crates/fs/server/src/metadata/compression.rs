//! Compression settings: the choice for a new file, and the attribute that shows and sets them.

use super::cluster_map::Settings;
use super::fault::Outcome;
use super::op::Op;
use super::tables::put_inode;
use std::collections::BTreeMap;
use weft_core::{Compression, CompressionSetting, FileId, Layout, Nanos, TargetId, Timestamp};
use weft_store::metadata::{Inode, Node, Transaction};
use weft_wire::Rights;
use weft_wire::meta::MetaReply;

/// Time after a write of a compressed file in which its servers may still compress it, so that the stored bytes change
/// without a writer. Its size becomes valid only after that time; until then it is collected from the datafiles.
const SETTLE_TIME: Nanos = Nanos::from_s(600);

/// Compression of new files for which no request, rule or directory has a setting.
#[derive(Clone, Default, Debug)]
pub(super) struct DefaultCompression {
    /// Settings of targets. They apply to files on targets with the same setting.
    targets: BTreeMap<TargetId, CompressionSetting>,
    /// Compression of all other files.
    cluster: Option<Compression>,
}

impl DefaultCompression {
    pub(super) fn new(cluster: Option<Compression>, settings: &Settings) -> Self {
        let mut this = Self { cluster, ..Self::default() };
        this.set_targets(settings);
        this
    }

    /// Takes the settings of the targets of a new cluster map.
    pub(super) fn set_targets(&mut self, settings: &Settings) {
        let settings =
            settings.iter().filter_map(|(target, settings)| Some((*target, settings.compression?)));
        self.targets = settings.collect();
    }

    /// Setting of a new file with this layout.
    pub(super) fn of(&self, layout: &Layout) -> Option<CompressionSetting> {
        let cluster = self.cluster.map(CompressionSetting::On);
        if self.targets.is_empty() {
            return cluster; // almost every cluster
        }
        let mut settings = layout.objects().map(|(_, target)| self.targets.get(&target));
        let first = settings.next().flatten().copied();
        if settings.all(|setting| setting.copied() == first) { first.or(cluster) } else { cluster }
    }
}

/// Rights that tell a data server the settings of a file's datafiles.
pub(super) fn datafile_settings(inode: &Inode) -> Rights {
    Rights::of_integrity(inode.integrity()).and(Rights::of_compression(inode.compression()))
}

/// Whether no background compression changes the stored bytes of a file last written at `mtime`.
pub(super) fn is_settled(inode: &Inode, mtime: Option<Timestamp>, now: Timestamp) -> bool {
    inode.compression().is_none() || mtime.is_none_or(|mtime| mtime.0 + i128::from(SETTLE_TIME.0) < now.0)
}

impl Op<'_> {
    /// Sets the compression of an empty file, or of new files of a directory. `None` removes the setting; a file then
    /// gets the default.
    pub(super) fn set_compression(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        mut inode: Inode,
        value: Option<&[u8]>,
    ) -> Outcome<MetaReply> {
        let written = "only a file that was never written changes its compression at once: convert this one with \
                       `weft migrate --compress`";
        let mut setting = self.datafile_setting(file, &inode, value, written)?;
        if let Node::Regular { layout, .. } = &inode.node {
            setting = setting.or_else(|| self.core.compression.read().of(layout));
        }
        inode.set_compression(setting);
        inode.ctime = self.now;
        put_inode(t, file, &inode);
        Ok(MetaReply::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::ByteLen;

    #[test]
    fn targets_of_one_setting_override_the_cluster() {
        let setting = |text: &str| text.parse::<CompressionSetting>().expect("a setting");
        let layout = |targets: &[u32]| {
            let targets: Vec<TargetId> = targets.iter().copied().map(TargetId).collect();
            Layout::striped(&targets, ByteLen(4096)).expect("a layout")
        };
        let mut default = DefaultCompression::default();
        assert_eq!(default.of(&layout(&[0, 1])), None);
        default.cluster = "lz4".parse().ok();
        assert_eq!(default.of(&layout(&[0, 1])), Some(setting("lz4")));
        default.targets =
            [(TargetId(0), setting("zstd")), (TargetId(1), setting("zstd")), (TargetId(2), setting("off"))]
                .into();
        assert_eq!(default.of(&layout(&[0, 1])), Some(setting("zstd")));
        assert_eq!(default.of(&layout(&[2])), Some(setting("off")));
        assert_eq!(default.of(&layout(&[0, 2])), Some(setting("lz4")), "they differ");
        assert_eq!(default.of(&layout(&[0, 3])), Some(setting("lz4")), "one has none");
        assert_eq!(default.of(&layout(&[3])), Some(setting("lz4")));
    }
}
