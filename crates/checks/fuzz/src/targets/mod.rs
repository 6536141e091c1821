//! The table of all fuzz targets.

mod bodies;
mod capability;
mod compressed;
mod config;
mod fragments;
mod header;
mod keys;
mod layout;
mod link;
mod metadata;
mod planner;
mod replicas;
mod sealed;
mod service;
mod store;
mod text;
mod trace;

use crate::Outcome;
use crate::mutate::Shape;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target and of its libFuzzer program.
    pub name: &'static str,
    /// Runs the target on an input. Panics if a property does not hold.
    pub run: fn(&[u8]) -> Outcome,
    /// Returns the initial inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Structure of the inputs.
    pub shape: Shape,
}

macro_rules! targets {
    ($($(#[$doc:meta])* $name:ident = $module:ident, $seeds:path, $shape:expr;)*) => {
        $($(#[$doc])* pub fn $name(data: &[u8]) -> Outcome {
            $module::$name(data)
        })*

        /// All targets.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), run: $name, seeds: $seeds, shape: $shape }),*];
    };
}

targets! {
    /// Message headers.
    header = header, header::seeds, Shape::Binary;
    /// `Hello` and `Proof`, decoded from the same bytes.
    hello_request = bodies, bodies::hello_request_seeds, Shape::Binary;
    /// Claims of keys, and the identities that they admit.
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
    /// `DelegateRequest`.
    delegate_request = bodies, bodies::delegate_request_seeds, Shape::Binary;
    /// `DelegateReply`.
    delegate_reply = bodies, bodies::delegate_reply_seeds, Shape::Binary;
    /// A byte stream in arbitrary pieces, compared with a reader of the complete stream.
    link = link, link::seeds, Shape::Binary;
    /// A sealed byte stream that an attacker modified.
    sealed = sealed, sealed::seeds, Shape::Binary;
    /// Layouts and lookups in them.
    layout = layout, layout::seeds, Shape::Binary;
    /// Capabilities and their verification.
    capability = capability, capability::seeds, Shape::Binary;
    /// Walk proofs, their verification, and the places that carry them.
    walk_proof = capability, capability::walk_proof_seeds, Shape::Binary;
    /// Cluster files.
    cluster_file = config, config::cluster_file_seeds, Shape::Text(config::WORDS);
    /// Cluster files that are generated for an embedded cluster in any directory.
    embedded_file = config, config::embedded_file_seeds, Shape::Text(&["/", "..", "\\u{7f}", "run", "\\"]);
    /// Key files.
    key_file = config, config::key_file_seeds, Shape::Text(&[
        "-", ",", "weft-cluster-key-1", "weft-cluster-key-2", "weft-key-2", "root", "holder", "host", "squash", "never", " ", "\n",
    ]);
    /// Sizes and durations as users write them.
    quantity = text, text::quantity_seeds, Shape::Text(&["KiB", "MiB", "TiB", "ms", "min", " ", "ns", "h"]);
    /// Patterns of rules, matched with a path.
    pattern = text, text::pattern_seeds, Shape::Text(&["*", "**", "/", "{n}", "[", "]", "?", "\\", "\n", "!", "-", "7"]);
    /// Server addresses.
    address = text, text::address_seeds, Shape::Text(&["unix:", "tcp:", ":", "[", "]", "/", "::1", "65535"]);
    /// Identity files of targets.
    target_identity = store, store::target_identity_seeds, Shape::Binary;
    /// Names of datafiles.
    datafile_name = store, store::datafile_name_seeds, Shape::Text(&[".", "0", "+", "ffffffffffffffff", "65535"]);
    /// Headers of checksum files.
    checksum_header = store, store::checksum_header_seeds, Shape::Binary;
    /// Checksum slots and their blocks.
    checksum_slot = store, store::checksum_slot_seeds, Shape::Binary;
    /// Headers of the maps and containers of compressed datafiles.
    compressed_header = compressed, compressed::compressed_header_seeds, Shape::Binary;
    /// Maps of compressed datafiles, as read at an open.
    compressed_map = compressed, compressed::compressed_map_seeds, Shape::Binary;
    /// Compressed bytes of chunks.
    compressed_chunk = compressed, compressed::compressed_chunk_seeds, Shape::Binary;
    /// Mappings of replicas.
    replica_mapping = replicas, replicas::replica_mapping_seeds, Shape::Binary;
    /// States of replicas.
    replica_state = replicas, replicas::replica_state_seeds, Shape::Binary;
    /// Plans of replicas.
    replica_plan = replicas, replicas::replica_plan_seeds, Shape::Text(replicas::WORDS);
    /// Rows of the metadata database.
    metadata_row = metadata, metadata::metadata_row_seeds, Shape::Binary;
    /// Logs of the metadata database, as read at a start.
    metadata_log = metadata, metadata::metadata_log_seeds, Shape::Binary;
    /// Dumps of the metadata database.
    metadata_dump = metadata, metadata::metadata_dump_seeds, Shape::Binary;
    /// Slots of the file with the checksums of the metadata base.
    metadata_sums = metadata, metadata::metadata_sums_seeds, Shape::Binary;
    /// Identity files of metadata paths.
    metadata_identity = metadata, metadata::metadata_identity_seeds, Shape::Binary;
    /// Journals of fragment logs, as read at a start.
    fragments_journal = fragments, fragments::fragments_journal_seeds, Shape::Binary;
    /// Identity files of fragment logs.
    fragments_identity = fragments, fragments::fragments_identity_seeds, Shape::Binary;
    /// Tokens of open files, which a program passes on when it executes another.
    handle_token = metadata, metadata::handle_token_seeds, Shape::Binary;
    /// Traces in Weft's format.
    wtrace = trace, trace::wtrace_seeds, Shape::Binary;
    /// Tail files of traced processes.
    trace_tail = trace, trace::trace_tail_seeds, Shape::Binary;
    /// Traces as CSV.
    trace_csv = trace, trace::trace_csv_seeds, Shape::Text(trace::WORDS);
    /// DXT modules of Darshan logs.
    darshan_dxt = trace, trace::darshan_dxt_seeds, Shape::Binary;
    /// Figures of clusters, written by hand or measured, and plans computed from them.
    figures_file = planner, planner::figures_file_seeds, Shape::Text(planner::WORDS);
    /// Plans, and layouts computed from them.
    plan_file = planner, planner::plan_file_seeds, Shape::Text(planner::WORDS);
    /// A metadata service that receives arbitrary requests.
    meta_service = service, service::meta_service_seeds, Shape::Binary;
}
