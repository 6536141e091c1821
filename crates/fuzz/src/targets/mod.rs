//! The targets.

mod bodies;
mod capability;
mod config;
mod fragments;
mod header;
mod keys;
mod layout;
mod link;
mod metadata;
mod planner;
mod sealed;
mod service;
mod store;
mod text;
mod trace;

use crate::Outcome;
use crate::mutate::Shape;

/// A decoder and what must hold for it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its libFuzzer program.
    pub name: &'static str,
    /// Panics when something does not hold.
    pub run: fn(&[u8]) -> Outcome,
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What inputs are made of.
    pub shape: Shape,
}

macro_rules! targets {
    ($($(#[$doc:meta])* $name:ident = $module:ident, $seeds:path, $shape:expr;)*) => {
        $($(#[$doc])* pub fn $name(data: &[u8]) -> Outcome {
            $module::$name(data)
        })*

        /// All of them.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), run: $name, seeds: $seeds, shape: $shape }),*];
    };
}

targets! {
    /// The header before every message.
    header = header, header::seeds, Shape::Binary;
    /// `Hello` and, over the same bytes, `Proof`.
    hello_request = bodies, bodies::hello_request_seeds, Shape::Binary;
    /// Claims of keys, and whom they admit.
    key_claims = keys, keys::key_claims_seeds, Shape::Binary;
    /// `HelloReply`.
    hello_reply = bodies, bodies::hello_reply_seeds, Shape::Binary;
    /// `DataRequest`.
    data_request = bodies, bodies::data_request_seeds, Shape::Binary;
    /// `DataReply`.
    data_reply = bodies, bodies::data_reply_seeds, Shape::Binary;
    /// `MetaCall`.
    meta_request = bodies, bodies::meta_request_seeds, Shape::Binary;
    /// `MetaReply`.
    meta_reply = bodies, bodies::meta_reply_seeds, Shape::Binary;
    /// `StatusRequest`.
    status_request = bodies, bodies::status_request_seeds, Shape::Binary;
    /// `StatusReply`.
    status_reply = bodies, bodies::status_reply_seeds, Shape::Binary;
    /// A byte stream in any pieces, against a reader that has all of it at once.
    link = link, link::seeds, Shape::Binary;
    /// A sealed byte stream that was tampered with.
    sealed = sealed, sealed::seeds, Shape::Binary;
    /// A layout, and lookups in it.
    layout = layout, layout::seeds, Shape::Binary;
    /// Capabilities and their verification.
    capability = capability, capability::seeds, Shape::Binary;
    /// Walk proofs and their verification, and the places that carry them.
    walk_proof = capability, capability::walk_proof_seeds, Shape::Binary;
    /// The cluster file.
    cluster_file = config, config::cluster_file_seeds, Shape::Text(config::WORDS);
    /// The cluster file that is written for an embedded cluster under any path.
    embedded_file = config, config::embedded_file_seeds, Shape::Text(&["/", "..", "\\u{7f}", "run", "\\"]);
    /// Key files.
    key_file = config, config::key_file_seeds, Shape::Text(&[
        "-", ",", "weft-cluster-key-1", "weft-cluster-key-2", "weft-key-2", "root", "holder", "host", "squash", "never", " ", "\n",
    ]);
    /// Sizes and durations as people write them.
    quantity = text, text::quantity_seeds, Shape::Text(&["KiB", "MiB", "TiB", "ms", "min", " ", "ns", "h"]);
    /// Patterns of rules, and a path.
    pattern = text, text::pattern_seeds, Shape::Text(&["*", "**", "/", "{n}", "[", "]", "?", "\\", "\n", "!", "-", "7"]);
    /// Addresses of servers.
    address = text, text::address_seeds, Shape::Text(&["unix:", "tcp:", ":", "[", "]", "/", "::1", "65535"]);
    /// The identity file of a target.
    target_identity = store, store::target_identity_seeds, Shape::Binary;
    /// Names of datafiles.
    datafile_name = store, store::datafile_name_seeds, Shape::Text(&[".", "0", "+", "ffffffffffffffff", "65535"]);
    /// The header of the checksums beside a datafile.
    checksum_header = store, store::checksum_header_seeds, Shape::Binary;
    /// A checksum beside a datafile, and its block.
    checksum_slot = store, store::checksum_slot_seeds, Shape::Binary;
    /// Rows of the metadata database.
    metadata_row = metadata, metadata::metadata_row_seeds, Shape::Binary;
    /// The metadata database's log, as a start reads it.
    metadata_log = metadata, metadata::metadata_log_seeds, Shape::Binary;
    /// Dumps of the metadata database.
    metadata_dump = metadata, metadata::metadata_dump_seeds, Shape::Binary;
    /// Slots of the file with the checksums of the metadata base.
    metadata_sums = metadata, metadata::metadata_sums_seeds, Shape::Binary;
    /// The identity file of a metadata path.
    metadata_identity = metadata, metadata::metadata_identity_seeds, Shape::Binary;
    /// The journal of a fragment log, as a start reads it.
    fragments_journal = fragments, fragments::fragments_journal_seeds, Shape::Binary;
    /// The identity file of a fragment log.
    fragments_identity = fragments, fragments::fragments_identity_seeds, Shape::Binary;
    /// Tokens of open files, as a program image gives them to the next.
    handle_token = metadata, metadata::handle_token_seeds, Shape::Binary;
    /// Weft's own traces.
    wtrace = trace, trace::wtrace_seeds, Shape::Binary;
    /// What a traced process had not written yet.
    trace_tail = trace, trace::trace_tail_seeds, Shape::Binary;
    /// Traces as CSV.
    trace_csv = trace, trace::trace_csv_seeds, Shape::Text(trace::WORDS);
    /// What lies in the DXT modules of a Darshan log.
    darshan_dxt = trace, trace::darshan_dxt_seeds, Shape::Binary;
    /// Figures of clusters, by hand and measured, and what the planner makes of them.
    figures_file = planner, planner::figures_file_seeds, Shape::Text(planner::WORDS);
    /// Plans, and layouts by them.
    plan_file = planner, planner::plan_file_seeds, Shape::Text(planner::WORDS);
    /// A metadata service, asked anything.
    meta_service = service, service::meta_service_seeds, Shape::Binary;
}
