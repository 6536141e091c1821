use super::*;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

type Server = RefCell<Vec<u8>>;

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).expect("a range")
}

fn read(server: &Server, at: u64, buffer: &mut [u8]) -> Result<usize, ()> {
    let server = server.borrow();
    let from = (at as usize).min(server.len());
    let len = buffer.len().min(server.len() - from);
    buffer[..len].copy_from_slice(&server[from..from + len]);
    Ok(len)
}

/// Pages of a file of two pages that is open for reading and writing.
fn pages(server: &Server) -> FilePages<&Server> {
    let pages = FilePages::default();
    pages.opened(Some((1, server)));
    pages
}

/// Reads a page as the kernel does.
fn fill(pages: &FilePages<&Server>, server: &Server, page: u64) -> Vec<u8> {
    let mut buffer = vec![0; PAGE as usize];
    let read_page = |buffer: &mut [u8]| read(server, page * PAGE, buffer);
    if let Filling::Begun(_reading) = pages.filling(page * PAGE, &mut buffer, read_page) {
        read(server, page * PAGE, &mut buffer).expect("read");
    }
    buffer
}

fn write_back(pages: &FilePages<&Server>, server: &Server, page: u64, bytes: &[u8]) {
    pages.write_back(page * PAGE, bytes, |parts| {
        for part in parts {
            let at = (page * PAGE) as usize;
            server.borrow_mut()[at + part.start..at + part.end].copy_from_slice(&bytes[part.clone()]);
        }
    });
}

#[test]
fn a_writeback_keeps_the_bytes_of_a_change_in_progress() {
    let server = RefCell::new(vec![1; 2 * PAGE as usize]);
    let pages = pages(&server);
    for filled_before in [true, false] {
        server.borrow_mut().fill(1);
        let early = filled_before.then(|| fill(&pages, &server, 0));
        let change = pages.begin(range(100, 200), |server, at, buffer| read(server, at, buffer));
        let change = change.expect("read");
        let mut page = early.unwrap_or_else(|| fill(&pages, &server, 0));
        server.borrow_mut()[100..200].fill(2);
        (page[99], page[150]) = (7, 8);
        write_back(&pages, &server, 0, &page);
        let changed = [server.borrow()[99], server.borrow()[100], server.borrow()[150], server.borrow()[199]];
        assert_eq!(changed, [7, 2, 8, 2]);
        // A store of the old value is a store.
        page[150] = 1;
        write_back(&pages, &server, 0, &page);
        assert_eq!(server.borrow()[150], 1);
        assert_eq!(pages.applied(change, Some(range(100, 200))), Some(range(0, PAGE)));
        pages.ended(change, range(0, PAGE));
        assert!(!pages.has_pages());
    }
}

/// A read that is served after a change began may bring new bytes: what it brings must not count as old.
#[test]
fn a_change_begins_after_reads_of_its_pages_in_progress() {
    let pages: FilePages<()> = FilePages::default();
    pages.opened(Some((1, ())));
    let has_ended = AtomicBool::new(false);
    let mut buffer = [0; 10];
    let Filling::Begun(reading) = pages.filling(0, &mut buffer, |_| Err(())) else { panic!("no change") };
    std::thread::scope(|scope| {
        let change = scope.spawn(|| {
            pages.begin(range(0, 10), |(), _, _| {
                assert!(has_ended.load(Ordering::SeqCst), "the read is in progress");
                Ok::<_, ()>(0)
            })
        });
        // Another page does not wait.
        let read_nothing = |_: &(), _, _: &mut [u8]| Ok::<_, ()>(0);
        let other = pages.begin(range(PAGE, PAGE + 1), read_nothing).expect("read");
        assert_eq!(pages.applied(other, Some(range(PAGE, PAGE + 1))), None);
        while pages.state.lock().changes.is_empty() && !change.is_finished() {
            std::thread::yield_now();
        }
        // A read that follows remembers its bytes, so that the change can begin.
        let mut second = [0; 10];
        let filling = pages.filling(0, &mut second, |buffer| Ok::<_, ()>(buffer.len()));
        assert!(matches!(filling, Filling::Done(Ok(10))));
        has_ended.store(true, Ordering::SeqCst);
        drop(reading);
        assert!(change.join().expect("no panic").is_ok());
    });
}

#[test]
fn a_page_that_cannot_be_read_can_be_overwritten_but_not_changed_in_part() {
    let server = RefCell::new(vec![1; 2 * PAGE as usize]);
    let pages = pages(&server);
    (0..2).for_each(|page| drop(fill(&pages, &server, page)));
    let begin = |changed| {
        pages.begin(changed, |server, at, buffer| {
            let is_damaged = at < 2 * PAGE && at + buffer.len() as u64 > PAGE;
            if is_damaged { Err(()) } else { read(server, at, buffer) }
        })
    };
    assert_eq!(begin(range(PAGE + 1, PAGE + 2)), Err(()));
    let change = begin(range(PAGE - 1, 2 * PAGE)).expect("the damaged page is replaced");
    // The page before it was remembered.
    server.borrow_mut()[PAGE as usize - 1] = 2;
    write_back(&pages, &server, 0, &[1; PAGE as usize]);
    assert_eq!(server.borrow()[PAGE as usize - 1], 2);
    pages.applied(change, Some(range(PAGE - 1, 2 * PAGE)));
}

#[test]
fn pages_read_after_a_change_have_to_be_dropped_by_the_next() {
    let server = RefCell::new(vec![1; 2 * PAGE as usize]);
    let pages = pages(&server);
    let begin =
        |at| pages.begin(range(at, at + 10), |server, at, buffer| read(server, at, buffer)).expect("read");
    let first = begin(0);
    assert_eq!(pages.applied(first, Some(range(0, 10))), None, "no page was read");
    fill(&pages, &server, 0);
    let second = begin(5);
    assert_eq!(pages.applied(second, Some(range(5, 15))), Some(range(0, PAGE)));
    fill(&pages, &server, 0);
    pages.ended(second, range(0, PAGE));
    let third = begin(PAGE);
    assert_eq!(pages.applied(third, Some(range(PAGE, PAGE + 10))), None, "another page");
    let fourth = begin(0);
    assert_eq!(pages.applied(fourth, Some(range(0, 10))), Some(range(0, PAGE)));
    pages.ended(fourth, range(0, PAGE));
    assert!(!pages.has_pages());
}

#[test]
fn files_without_writers_remember_nothing() {
    let server = RefCell::new(vec![1; 10]);
    let pages: FilePages<&Server> = FilePages::default();
    fill(&pages, &server, 0);
    assert!(!pages.has_pages());
    pages.opened(Some((1, &server)));
    assert_eq!(fill(&pages, &server, 0)[..11], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
    assert!(pages.has_pages());
    pages.closed(1);
    assert!(!pages.has_pages());
}
