use super::super::rates::{Client, Measured, Server, ServerState, Target};
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use weft_core::{ByteLen, FileId, TargetId};
use weft_wire::hello::Process;
use weft_wire::meta::KnownPath;

fn measured(read: f64, write: f64) -> Measured {
    let flow = super::super::rates::Flow {
        read_bytes: read,
        written_bytes: write,
        reads: read / 65_536.0,
        writes: write / 65_536.0,
        time_ns: 250_000.0 * (read + write) / 65_536.0,
        ..Default::default()
    };
    Measured { flow, ..Measured::default() }
}

fn rates() -> Rates {
    let mut rates = Rates { is_complete: true, interval: Nanos::from_s(2), ..Rates::default() };
    for (index, (program, uid, read, write)) in
        [("ior", 0, 64e6, 0.0), ("btio", 0, 0.0, 512e6), ("idle", 0, 0.0, 0.0)].into_iter().enumerate()
    {
        let process = Process { host: "node17".into(), pid: 4000 + index as u32, program: program.into() };
        let client = Client { process, connections: 1, measured: measured(read, write), ..Client::default() };
        rates.clients.insert((index as u64, uid), client);
        rates.files.insert((FileId(70 + index as u64), uid), measured(read, write));
    }
    rates.users.insert(0, measured(64e6, 512e6));
    rates.total = measured(65e6, 512e6).flow;
    let up = ServerState {
        uptime: Nanos::from_s(60),
        connections: 3,
        memory: ByteLen::from_mib(20),
        flow: Some(rates.total),
    };
    rates.servers = vec![
        Server { name: "s0".into(), state: Ok(up) },
        Server { name: "s1".into(), state: Err("connection refused".into()) },
    ];
    let status = weft_wire::status::TargetStatus {
        target: TargetId(0),
        class: "hdd".into(),
        path: "/d".into(),
        module: "buffered".into(),
        total: ByteLen(1 << 40),
        free: ByteLen(1 << 39),
        bytes_read: 0,
        bytes_written: 0,
        requests: 0,
        fragments: 0,
        queue: 4,
        leases: 7,
        damaged: 0,
        unverified: 0,
        bytes_compressed: 0,
        bytes_stored: 0,
        ssd: None,
        file_system: 1,
        refused: None,
        disk: None,
    };
    let target = Target {
        server: "s0".into(),
        status,
        flow: rates.total,
        read: Latency { p50: Some(Nanos(120_000)), p99: Some(Nanos(2_400_000)) },
        write: Latency::default(),
        disk: Some((1e6, 600e6)),
    };
    rates.targets.insert(TargetId(0), target);
    rates.other_clients = measured(1e6, 0.0).flow;
    rates
}

use super::super::rates::Latency;

fn screen() -> Screen {
    let mut labels = Labels { mount: "/weft".into(), ..Labels::default() };
    labels.paths.insert(FileId(70), KnownPath::Path(b"runs/2026/out.h5".to_vec()));
    labels.paths.insert(FileId(71), KnownPath::Hidden);
    let mut screen = Screen::new("physics", labels, Nanos::from_s(2), Sort::Bytes, String::new(), true);
    assert!(screen.update(rates()));
    screen.add_point();
    screen
}

/// Text of a drawn screen, one line for each row.
fn drawn(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| screen.draw(frame)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(row).collect()
}

fn press(screen: &mut Screen, keys: &str) -> Vec<Action> {
    keys.chars().map(|c| screen.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE))).collect()
}

fn line_with<'a>(lines: &'a [String], text: &str) -> &'a str {
    lines.iter().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text:?} in {lines:#?}"))
}

#[test]
fn a_usual_terminal_shows_totals_rows_and_servers_that_are_down() {
    let mut screen = screen();
    let lines = drawn(&mut screen, 80, 24);
    assert!(
        lines[0].contains("weft top  physics") && lines[0].contains("1 up, 1 DOWN  every 2 s"),
        "{}",
        lines[0]
    );
    assert!(lines[1].contains("read 62.0 MiB/s") && lines[1].contains("write 488 MiB/s"), "{}", lines[1]);
    let (btio, ior) = (line_with(&lines, "btio"), line_with(&lines, "ior "));
    for part in ["4001", "root", "488 MiB/s", "781", "250 us"] {
        assert!(btio.contains(part), "{part}: {btio}");
    }
    let at = |row: &str| lines.iter().position(|line| line == row);
    assert!(at(btio) < at(ior), "sorted by bytes");
    assert!(!lines.iter().any(|line| line.contains("idle")), "no rows without activity");
    assert!(line_with(&lines, "(others)").contains("977 KiB/s"));
    assert!(line_with(&lines, "no answer from s1").contains("table 5"));
    assert!(line_with(&lines, "7 leases").contains("DISK of targets"));
    press(&mut screen, "5");
    assert!(line_with(&drawn(&mut screen, 80, 24), "s1").contains("DOWN"));
    assert!(line_with(&drawn(&mut screen, 120, 24), "s1").contains("connection refused"));
    press(&mut screen, "4");
    let lines = drawn(&mut screen, 160, 24);
    let target = line_with(&lines, "hdd");
    for part in ["2.40 ms", "572 MiB/s", "50%", "7"] {
        assert!(target.contains(part), "{part}: {target}");
    }
}

#[test]
fn a_small_terminal_shows_the_most_important_columns() {
    let mut screen = screen();
    let lines = drawn(&mut screen, 40, 10);
    let btio = line_with(&lines, "btio");
    assert!(btio.contains("488 MiB/s") && !btio.contains("node17"), "{btio}");
    assert!(lines[0].contains("DOWN"), "{}", lines[0]);
    assert!(lines.iter().all(|line| line.chars().count() == 40));
    press(&mut screen, "3");
    let lines = drawn(&mut screen, 40, 10);
    assert!(line_with(&lines, "out.h5").contains("61.0 MiB/s"), "{lines:#?}");
    // Sizes without room for a table draw, too.
    for (width, height) in [(1, 1), (5, 3), (19, 30), (20, 6), (200, 6), (400, 100)] {
        for keys in ["1", "2", "3", "4", "5", "?"] {
            press(&mut screen, keys);
            assert_eq!(drawn(&mut screen, width, height).len(), usize::from(height));
        }
        press(&mut screen, "x"); // closes the help
    }
}

#[test]
fn keys_change_table_order_filter_interval_and_pause() {
    let mut screen = screen();
    assert_eq!(press(&mut screen, "3"), [Action::None]);
    let lines = drawn(&mut screen, 100, 24);
    assert!(line_with(&lines, "/weft/runs/2026/out.h5").contains("61.0 MiB/s"));
    assert!(line_with(&lines, "inode 0x47 (path not permitted)").contains("488 MiB/s"));
    press(&mut screen, "/OUT");
    let lines = drawn(&mut screen, 100, 24);
    assert!(
        lines.iter().any(|line| line.contains("/ OUT_"))
            && !lines.iter().any(|line| line.contains("inode 0x47"))
    );
    screen.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
    line_with(&drawn(&mut screen, 100, 24), "inode 0x47");
    press(&mut screen, "l");
    line_with(&drawn(&mut screen, 100, 24), "by latency");
    assert_eq!(press(&mut screen, "+"), [Action::Interval]);
    assert_eq!(screen.interval(), Nanos::from_s(5));
    press(&mut screen, " ");
    assert!(!screen.update(Rates::default()), "paused");
    line_with(&drawn(&mut screen, 100, 24), "PAUSED");
    press(&mut screen, "?");
    line_with(&drawn(&mut screen, 100, 24), "Help, any key closes");
    press(&mut screen, "x");
    assert_eq!(press(&mut screen, "q"), [Action::Quit]);
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.key(control), Action::Quit);
}

#[test]
fn without_colors_cells_have_none() {
    let colored = |has_colors: bool| {
        let mut screen = Screen { has_colors, ..screen() };
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
        terminal.draw(|frame| screen.draw(frame)).expect("drawn");
        let cells = terminal.backend().buffer().content();
        cells.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(colored(true) && !colored(false));
}

#[test]
fn names_cannot_change_the_terminal() {
    let mut rates = rates();
    for client in rates.clients.values_mut() {
        client.process.program = "a\u{1b}[2Jb\n".into();
    }
    let mut screen = screen();
    screen.labels.paths.insert(FileId(70), KnownPath::Path(b"x\x1b]0;title\x07\xff".to_vec()));
    screen.update(rates);
    line_with(&drawn(&mut screen, 80, 24), "a?[2Jb?");
    press(&mut screen, "3");
    line_with(&drawn(&mut screen, 100, 24), "/weft/x");
    assert!(
        !drawn(&mut screen, 100, 24).iter().any(|line| line.contains('\u{1b}') || line.contains('\u{7}'))
    );
}
