//! Operations that every world must support, tested by the same code in each.

mod worlds;

use worlds::*;

/// Generates one test in every world for each generic check.
macro_rules! in_every_world {
    ($($check:ident),* $(,)?) => {
        mod real {
            $(#[test] fn $check() { super::run_real(super::checks::$check); })*
        }
        mod sim {
            $(#[test] fn $check() { super::run_sim(super::checks::$check); })*
        }
    };
}

mod checks {
    pub use crate::worlds::conn::*;
    pub use crate::worlds::dir::*;
    pub use crate::worlds::file::*;
    pub use crate::worlds::tasks::*;
}

in_every_world!(
    bytes_arrive_in_order,
    many_parts_arrive_whole,
    a_file_is_sent_behind_its_head,
    a_file_that_became_shorter_is_filled_with_zeros,
    a_silent_peer_times_out,
    a_peer_that_does_not_read_times_out,
    end_of_stream_is_seen,
    connecting_without_a_listener_fails,
    an_address_in_use_is_rejected,
    attachments_arrive,
    attachments_stay_on_the_node,
    a_closer_wakes_the_receiver,
    a_closer_wakes_the_acceptor,
    the_peer_is_known,
    vectored_io_is_exact,
    reads_end_at_the_end_of_the_file,
    lengths_change,
    shared_memory_is_written,
    a_blocking_file_is_the_same_file,
    files_are_created_as_requested,
    names_are_listed_removed_and_renamed,
    removed_files_live_while_open,
    names_stay_inside,
    locks_exclude,
    notifications_are_not_lost,
    waiting_for_a_notification_ends,
    time_passes,
);
