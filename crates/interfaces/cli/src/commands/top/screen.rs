//! Contents of the terminal, and effects of keys. Draws on any backend, so that tests can read it.

use super::rates::Rates;
use super::view::{self, Column, Labels, Rows, Sort, Tab};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Sparkline, Table};
use std::collections::VecDeque;
use weft_core::Nanos;
use weft_core::units::human_bytes;

/// Intervals in the curves of the recent past. As many as a wide terminal has columns.
const HISTORY_LEN: usize = 512;
/// Intervals that the keys choose from.
const INTERVALS_MS: [u64; 8] = [250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];
/// Height from which the curves of the recent past are shown.
const CURVES_HEIGHT_MIN: u16 = 20;
/// Height from which latencies and space are shown.
const SUMMARY_HEIGHT_MIN: u16 = 14;
/// Smallest screen that has room for a table.
const SCREEN_MIN: (u16, u16) = (20, 6);

const HELP: &[(&str, &str)] = &[
    ("Tab, 1 to 5", "next table; clients, users, files, targets, servers"),
    ("b, r, l, s", "sort by bytes, requests, latency; next"),
    ("/", "show rows with a text; Esc shows all"),
    ("Up, Down, PgUp, PgDn, Home", "scroll"),
    ("+, -", "longer, shorter interval"),
    ("Space", "pause, continue"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("READ, WRITE, IO/s", "requests about bytes, by messages"),
    ("META/s", "requests to the metadata server"),
    ("LATENCY", "average from arrival to reply"),
    ("LEASES", "descriptors lent to programs; no server sees"),
    ("", "their requests, only the disk of a target does"),
    ("(others)", "all that no row has"),
];

/// Result of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing to do beyond the screen.
    None,
    /// The interval has changed.
    Interval,
    /// The user quits.
    Quit,
}

/// State of the screen.
pub struct Screen {
    cluster: String,
    tab: Tab,
    sort: Sort,
    filter: String,
    /// Whether keys change the filter.
    is_editing: bool,
    is_paused: bool,
    is_helping: bool,
    interval: Nanos,
    scroll: usize,
    rates: Option<Rates>,
    /// Bytes read and written per second, the latest first.
    history: VecDeque<(u64, u64)>,
    has_colors: bool,
    /// Names for rows.
    pub labels: Labels,
}

impl Screen {
    /// Creates a screen without rates.
    pub fn new(
        cluster: &str,
        labels: Labels,
        interval: Nanos,
        sort: Sort,
        filter: String,
        colors: bool,
    ) -> Self {
        Self {
            cluster: cluster.to_owned(),
            tab: Tab::Clients,
            sort,
            filter,
            is_editing: false,
            is_paused: false,
            is_helping: false,
            interval,
            scroll: 0,
            rates: None,
            history: VecDeque::new(),
            has_colors: colors,
            labels,
        }
    }

    /// Time between two observations.
    pub fn interval(&self) -> Nanos {
        self.interval
    }

    /// Order of the rows.
    pub fn sort(&self) -> Sort {
        self.sort
    }

    /// Shows new rates, unless the screen is paused. Returns whether it shows them.
    pub fn update(&mut self, rates: Rates) -> bool {
        if self.is_paused {
            return false;
        }
        self.rates = Some(rates);
        true
    }

    /// Adds a point to the curves: once an interval, however many servers have answered.
    pub fn add_point(&mut self) {
        let Some(rates) = self.rates.as_ref().filter(|_| !self.is_paused) else { return };
        self.history.push_front((rates.total.read_bytes as u64, rates.total.written_bytes as u64));
        self.history.truncate(HISTORY_LEN);
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Action::Quit;
        }
        if self.is_editing {
            self.edit_filter(key.code);
            return Action::None;
        }
        if self.is_helping {
            self.is_helping = false;
            return if key.code == KeyCode::Char('q') { Action::Quit } else { Action::None };
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Tab | KeyCode::Right => self.show(self.next_tab(1)),
            KeyCode::BackTab | KeyCode::Left => self.show(self.next_tab(Tab::ALL.len() - 1)),
            KeyCode::Char(digit @ '1'..='5') => self.show(Tab::ALL[digit as usize - '1' as usize]),
            KeyCode::Char('b') => self.sort = Sort::Bytes,
            KeyCode::Char('r') => self.sort = Sort::Requests,
            KeyCode::Char('l') => self.sort = Sort::Latency,
            KeyCode::Char('s') => {
                let at = Sort::ALL.iter().position(|sort| *sort == self.sort).unwrap_or(0);
                self.sort = Sort::ALL[(at + 1) % Sort::ALL.len()];
            }
            KeyCode::Char('/') => self.is_editing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.is_helping = true,
            KeyCode::Char('+' | '=') => return self.change_interval(true),
            KeyCode::Char('-') => return self.change_interval(false),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::PageDown => self.scroll += 10,
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        Action::None
    }

    fn edit_filter(&mut self, code: KeyCode) {
        self.scroll = 0;
        match code {
            KeyCode::Enter => self.is_editing = false,
            KeyCode::Esc => {
                self.is_editing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
    }

    fn next_tab(&self, steps: usize) -> Tab {
        let at = Tab::ALL.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        Tab::ALL[(at + steps) % Tab::ALL.len()]
    }

    fn show(&mut self, tab: Tab) {
        self.tab = tab;
        self.scroll = 0;
    }

    fn change_interval(&mut self, is_longer: bool) -> Action {
        let ms = self.interval.0 / 1_000_000;
        let next = match is_longer {
            true => INTERVALS_MS.iter().find(|next| **next > ms),
            false => INTERVALS_MS.iter().rev().find(|next| **next < ms),
        };
        let Some(next) = next else { return Action::None };
        self.interval = Nanos::from_ms(*next);
        Action::Interval
    }

    /// Style with a color, or with a modifier where there are no colors.
    fn style(&self, color: Color, otherwise: Modifier) -> Style {
        match self.has_colors {
            true => Style::new().fg(color),
            false => Style::new().add_modifier(otherwise),
        }
    }

    /// Draws the screen.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < SCREEN_MIN.0 || area.height < SCREEN_MIN.1 {
            frame.render_widget(Paragraph::new("too small"), area);
            return;
        }
        let rates = self.rates.take().unwrap_or_default();
        let summary = self.summary_lines(&rates, area);
        let notes = self.notes(&rates);
        let curves = if area.height >= CURVES_HEIGHT_MIN { 3 } else { 0 };
        let [title, totals, past, tabs, table, foot, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(summary.len() as u16),
            Constraint::Length(curves),
            Constraint::Length(1),
            Constraint::Min(2),
            Constraint::Length(notes.len() as u16),
            Constraint::Length(1),
        ])
        .areas(area);
        self.draw_title(frame, title, &rates);
        frame.render_widget(Paragraph::new(summary), totals);
        if curves > 0 {
            self.draw_curves(frame, past);
        }
        self.draw_tabs(frame, tabs, &rates);
        let rows = view::rows(&rates, self.tab, self.sort, &self.filter, &mut self.labels);
        self.draw_table(frame, table, &rows);
        frame.render_widget(Paragraph::new(notes), foot);
        self.draw_keys(frame, keys);
        if self.is_helping {
            self.draw_help(frame, area);
        }
        self.rates = Some(rates);
    }

    fn draw_title(&self, frame: &mut Frame<'_>, area: Rect, rates: &Rates) {
        let reverse = Style::new().add_modifier(Modifier::REVERSED);
        let down = rates.servers.iter().filter(|server| server.state.is_err()).count();
        let servers = match (rates.servers.len() - down, down) {
            (0, 0) => "connecting".to_owned(),
            (up, 0) => format!("{up} up"),
            (up, down) => format!("{up} up, {down} DOWN"),
        };
        let seconds = self.interval.0 as f64 / 1e9;
        let mut right = vec![servers, format!("every {seconds} s")];
        if !rates.servers.is_empty() && !rates.is_complete {
            right.push("only yours".into());
        }
        if self.is_paused {
            right.push("PAUSED".into());
        }
        let left = format!(" weft top  {}", self.cluster);
        let right = format!("{} ", right.join("  "));
        frame.render_widget(Paragraph::new(left).style(reverse), area);
        let width = (right.chars().count() as u16).min(area.width);
        let corner = Rect { x: area.right() - width, width, ..area };
        frame.render_widget(Paragraph::new(right).style(reverse.add_modifier(Modifier::BOLD)), corner);
    }

    /// Totals in as many lines as fit.
    fn summary_lines(&self, rates: &Rates, area: Rect) -> Vec<Line<'static>> {
        let groups: &[&[&str]] = match area.height < SUMMARY_HEIGHT_MIN {
            true => &[&["read", "write"]],
            false => &[
                &["read", "write", "I/O requests", "metadata requests"],
                &["read p50 / p99", "write p50 / p99", "metadata p50 / p99"],
                &["space", "SSDs", "leases"],
            ],
        };
        let all = view::summary(rates);
        let dim = Style::new().add_modifier(Modifier::DIM);
        let line = |names: &&[&str]| {
            let mut spans = vec![Span::raw(" ")];
            let mut left = usize::from(area.width) - 1;
            for (name, value) in all.iter().filter(|(name, _)| names.contains(name)) {
                let width = name.chars().count() + value.chars().count() + 3;
                if width > left + 2 {
                    break;
                }
                left = left.saturating_sub(width);
                spans.push(Span::styled(format!("{name} "), dim));
                spans.push(Span::styled(format!("{value}  "), Style::new().add_modifier(Modifier::BOLD)));
            }
            Line::from(spans)
        };
        groups.iter().map(line).collect()
    }

    fn draw_curves(&self, frame: &mut Frame<'_>, area: Rect) {
        let halves = Layout::horizontal([Constraint::Ratio(1, 2), Constraint::Ratio(1, 2)]).areas::<2>(area);
        for (half, is_read) in halves.into_iter().zip([true, false]) {
            let (name, color) = if is_read { ("read", Color::Cyan) } else { ("write", Color::Magenta) };
            let of = |point: &(u64, u64)| if is_read { point.0 } else { point.1 };
            // The newest point is at the right end.
            let mut data: Vec<u64> = self.history.iter().take(usize::from(half.width)).map(of).collect();
            let max = data.iter().copied().max().unwrap_or(0);
            data.resize(usize::from(half.width), 0);
            data.reverse();
            let title = format!(" {name}, up to {}/s ", human_bytes(max));
            let block = Block::new().title(Span::styled(title, Style::new().add_modifier(Modifier::DIM)));
            let curve = Sparkline::default().block(block).data(data).max(max.max(1));
            frame.render_widget(curve.style(self.style(color, Modifier::empty())), half);
        }
    }

    fn draw_tabs(&self, frame: &mut Frame<'_>, area: Rect, rates: &Rates) {
        let is_short = area.width < 60;
        let mut spans = vec![Span::raw(" ")];
        for (index, tab) in Tab::ALL.into_iter().enumerate() {
            let number = index + 1;
            let title =
                if is_short { tab.title()[..3].to_owned() } else { format!("{number} {}", tab.title()) };
            let is_down = tab == Tab::Servers && rates.is_missing_a_server();
            let style = match (tab == self.tab, is_down) {
                (true, _) => self
                    .style(Color::Yellow, Modifier::empty())
                    .add_modifier(Modifier::BOLD | Modifier::REVERSED),
                (false, true) => self.style(Color::Red, Modifier::BOLD),
                (false, false) => Style::new(),
            };
            spans.extend([Span::styled(format!(" {title} "), style), Span::raw(" ")]);
        }
        frame.render_widget(Paragraph::new(Line::from(spans)), area);
        if !is_short {
            let order = match self.filter.as_str() {
                "" => format!("by {} ", self.sort.title()),
                filter => format!("by {}, with {filter:?} ", self.sort.title()),
            };
            let dim = Style::new().add_modifier(Modifier::DIM);
            let width = (order.chars().count() as u16).min(area.width.saturating_sub(56));
            let corner = Rect { x: area.right() - width, width, ..area };
            frame.render_widget(Paragraph::new(order).style(dim).alignment(Alignment::Right), corner);
        }
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect, rows: &Rows) {
        if rows.cells.is_empty() {
            let text = match (self.history.is_empty(), self.filter.is_empty()) {
                (true, _) => " waiting for two replies of a server",
                (_, false) => " no active row contains the text",
                (_, true) => " nothing active",
            };
            frame.render_widget(Paragraph::new(text), area);
            return;
        }
        let height = usize::from(area.height.saturating_sub(1)).max(1);
        self.scroll = self.scroll.min(rows.cells.len().saturating_sub(height));
        let fitted = fit(rows, usize::from(area.width).saturating_sub(1));
        let cell = |text: &str, column: &Column, width: usize| {
            let line = Line::from(shortened(text, width, column.is_number));
            if column.is_number { line.alignment(Alignment::Right) } else { line }
        };
        let head = fitted.iter().map(|(at, width)| cell(rows.columns[*at].title, &rows.columns[*at], *width));
        let head = Row::new(head).style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED));
        let shown = rows.cells.iter().zip(&rows.is_down).skip(self.scroll).take(height);
        let body = shown.map(|(cells, is_down)| {
            let cells = fitted.iter().map(|(at, width)| cell(&cells[*at], &rows.columns[*at], *width));
            let style = if *is_down { self.style(Color::Red, Modifier::BOLD) } else { Style::new() };
            Row::new(cells).style(style)
        });
        let widths = fitted.iter().map(|(_, width)| Constraint::Length(*width as u16));
        let table = Table::new(body, widths).header(head).column_spacing(2);
        frame.render_widget(table, Rect { x: area.x + 1, width: area.width - 1, ..area });
    }

    /// Facts that change how the tables are read.
    fn notes(&self, rates: &Rates) -> Vec<Line<'static>> {
        let mut notes = Vec::new();
        let down: Vec<&str> = rates
            .servers
            .iter()
            .filter(|server| server.state.is_err())
            .map(|server| server.name.as_str())
            .collect();
        if !down.is_empty() {
            let text = format!(" no answer from {}: table 5 has the reason", down.join(", "));
            notes.push(Line::styled(text, self.style(Color::Red, Modifier::BOLD)));
        }
        if rates.leases() > 0 {
            let text = format!(" {} leases: their bytes show as DISK of targets only", rates.leases());
            notes.push(Line::styled(text, Style::new().add_modifier(Modifier::DIM)));
        }
        notes
    }

    fn draw_keys(&self, frame: &mut Frame<'_>, area: Rect) {
        if self.is_editing {
            let text = format!(" / {}_", self.filter);
            frame.render_widget(Paragraph::new(text).style(Style::new().add_modifier(Modifier::BOLD)), area);
            return;
        }
        let text = match area.width {
            ..60 => " q quit  ? help  Tab next  / filter",
            _ => " q quit  ? help  Tab next table  s sort  / filter  + - interval  Space pause",
        };
        frame.render_widget(Paragraph::new(text).style(Style::new().add_modifier(Modifier::DIM)), area);
    }

    fn draw_help(&self, frame: &mut Frame<'_>, area: Rect) {
        let width = area.width.min(76);
        let height = area.height.min(HELP.len() as u16 + 2);
        let place = Rect {
            x: area.x + (area.width - width) / 2,
            y: area.y + (area.height - height) / 2,
            width,
            height,
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let line = |(keys, text): &(&'static str, &'static str)| {
            Line::from(vec![Span::styled(format!(" {keys:<27}"), bold), Span::raw(*text)])
        };
        let help = Paragraph::new(HELP.iter().map(line).collect::<Vec<_>>());
        frame.render_widget(Clear, place);
        frame.render_widget(help.block(Block::bordered().title(" Help, any key closes ")), place);
    }
}

/// Chooses columns that fit into `width`, and the width of each. The last column gets what is left.
fn fit(rows: &Rows, width: usize) -> Vec<(usize, usize)> {
    let content = |at: usize| {
        let cells = rows.cells.iter().map(|cells| cells[at].chars().count());
        cells.chain([rows.columns[at].title.chars().count()]).max().unwrap_or(0)
    };
    /// Width below which a column of words is left out instead of cut.
    const WORD_MIN: usize = 12;
    let mut kept: Vec<(usize, usize)> = (0..rows.columns.len()).map(|at| (at, content(at))).collect();
    // A column without a value in any row says nothing on a narrow screen.
    let is_empty = |at: usize| rows.cells.iter().all(|cells| matches!(cells[at].as_str(), "" | "-" | "?"));
    let least = |kept: &[(usize, usize)]| {
        let cut = |(at, width): &(usize, usize)| match rows.columns[*at].is_number {
            true => *width,
            false => (*width).min(WORD_MIN),
        };
        kept.iter().map(|one| cut(one) + 2).sum::<usize>().saturating_sub(2)
    };
    while least(&kept) > width && kept.len() > 1 {
        let rank = |at: usize| (is_empty(at), rows.columns[at].rank);
        let worst = kept
            .iter()
            .enumerate()
            .filter(|(_, (at, _))| rows.columns[*at].rank > 0)
            .max_by_key(|(_, (at, _))| rank(*at))
            .map(|(index, _)| index);
        match worst {
            Some(index) => drop(kept.remove(index)),
            None => break,
        }
    }
    // Words share what is left.
    let mut over =
        kept.iter().map(|(_, width)| width + 2).sum::<usize>().saturating_sub(2).saturating_sub(width);
    for (at, width) in kept.iter_mut().rev() {
        if !rows.columns[*at].is_number && over > 0 {
            let cut = over.min(width.saturating_sub(WORD_MIN));
            *width -= cut;
            over -= cut;
        }
    }
    kept
}

/// Cuts a text to a width. Of a path the end is kept, which names the file.
fn shortened(text: &str, width: usize, is_number: bool) -> String {
    let count = text.chars().count();
    if count <= width || is_number || width == 0 {
        return text.to_owned();
    }
    if text.starts_with('/') {
        let end: String = text.chars().skip(count - (width - 1)).collect();
        return format!("…{end}");
    }
    let begin: String = text.chars().take(width - 1).collect();
    format!("{begin}…")
}

#[cfg(test)]
mod tests;
