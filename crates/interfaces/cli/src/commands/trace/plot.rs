//! `weft trace plot`.

use super::{Input, bar, tick};
use crate::atomic_file::AtomicFile;
use crate::commands::replicate;
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use weft_core::units::human_bytes;
use weft_export::heat::{FileHeat, HeatMap, Picture, Survey, View, svg};
use weft_trace::{FileId, Level, Names, Record, RecordStream, Source};

/// Plots a trace as a heat map in SVG.
#[derive(Args)]
pub struct Plot {
    #[command(flatten)]
    input: Input,
    /// Write the plot to this file; - is standard output
    #[arg(long, short, value_name = "FILE.svg")]
    output: PathBuf,
    /// Axes of the plot
    #[arg(long, value_enum, default_value_t = ViewArg::Time)]
    view: ViewArg,
    /// Number of files to plot, those with the most bytes first [default: 1]
    #[arg(long, value_name = "COUNT")]
    files: Option<usize>,
    /// Plot the files as one: all of them, or as many as --files says
    #[arg(long)]
    together: bool,
    /// Only files whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Interface to use [default: posix if any bytes were moved there]
    #[arg(long, value_enum)]
    level: Option<LevelArg>,
    /// Mark what the replicas of this plan contain, as a green bar along the offsets
    #[arg(long, value_name = "PLAN")]
    replicas: Option<PathBuf>,
    /// Heading [default: the program, or the trace's name]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ViewArg {
    /// Offset in the file over time
    Time,
    /// Rank over offset in the file
    Ranks,
    /// Rank over time
    RankTime,
}

#[derive(Clone, Copy, ValueEnum)]
enum LevelArg {
    Posix,
    MpiIo,
}

/// Maximum number of files in a plot.
const FILES_MAX: usize = 64;

impl Plot {
    /// Plots and returns the exit code.
    pub fn run(self) -> Result<u8, Failure> {
        if self.output.extension().is_some_and(|extension| !extension.eq_ignore_ascii_case("svg")) {
            return Err(Failure::new(self.output.display(), "plots are SVG").remedy(
                "name the file so (heat.svg); `rsvg-convert heat.svg -o heat.png` makes a PNG of one",
            ));
        }
        self.input.spare(&self.output)?;
        let output = AtomicFile::new(&self.output)?;
        let mut stream = self.input.open()?;
        let mut survey = Survey::default();
        pass(&mut *stream, |record| survey.add(record))?;
        let level = match self.level {
            Some(LevelArg::Posix) => Level::Posix,
            Some(LevelArg::MpiIo) => Level::MpiIo,
            None => survey.level(),
        };
        let all = survey.files(level);
        let fits = |(file, _): &&(FileId, FileHeat)| {
            let name = stream.names().file_name(*file).unwrap_or_default();
            self.only.as_ref().is_none_or(|part| name.contains(part.as_str()))
        };
        let most = self.files.unwrap_or(if self.together { usize::MAX } else { 1 }).max(1);
        let most = if self.together { most } else { most.min(FILES_MAX) };
        let shown: Vec<_> = all.iter().filter(fits).take(most).copied().collect();
        if self.level.is_none() && all.is_empty() {
            return Err(Failure::new(
                self.input.file.display(),
                "it moves no bytes: there is nothing to plot",
            ));
        }
        if shown.is_empty() {
            let which = self.only.as_ref().map(|text| format!(" of files with `{text}` in their names"));
            return Err(Failure::new(
                self.input.file.display(),
                format!("no bytes were moved at {level}{}", which.unwrap_or_default()),
            ));
        }
        let both =
            shown.iter().any(|(_, heat)| heat.read > 0) && shown.iter().any(|(_, heat)| heat.written > 0);
        let view = match self.view {
            ViewArg::Time => View::Time,
            ViewArg::Ranks => View::Ranks,
            ViewArg::RankTime => View::RankTime,
        };
        let groups: Vec<Vec<_>> =
            if self.together { vec![shown.clone()] } else { shown.iter().map(|file| vec![*file]).collect() };
        let cells = (Picture::columns(both), Picture::ROWS);
        let mut maps = HeatMap::of(&survey, level, &groups, view, cells);
        let mut stream = self.input.open()?;
        pass(&mut *stream, |record| maps.iter_mut().for_each(|map| map.add(record)))?;
        let mut notes = notes(&survey, level, &shown, all.len(), &*stream);
        if let Some(plan) = &self.replicas {
            notes.push(self.mark(plan, &shown, &mut maps, stream.names())?);
        }
        let picture = Picture {
            title: self.heading(&*stream),
            notes,
            files: groups.iter().map(|files| name(files, stream.names())).zip(maps).collect(),
        };
        output.write(svg(&picture).as_bytes())?;
        Ok(0)
    }

    /// Marks the replicas of a plan, and returns what the marks mean.
    fn mark(
        &self,
        plan: &Path,
        shown: &[(FileId, FileHeat)],
        maps: &mut [HeatMap],
        names: &Names,
    ) -> Result<String, Failure> {
        if matches!(self.view, ViewArg::RankTime) {
            return Err(Failure::misuse("--replicas", "a plot of ranks over time has no offsets to mark")
                .remedy("--view time or --view ranks"));
        }
        let mut marked = 0;
        for planned in replicate::read_plan(plan)?.replicas {
            let files = shown.iter().map(|(file, _)| *file);
            let Some(file) = files.into_iter().find(|file| names.file_name(*file) == Some(&planned.path))
            else {
                continue;
            };
            let mapping = planned.mapping().map_err(|error| Failure::misuse(plan.display(), error))?;
            for piece in mapping.pieces() {
                maps.iter_mut()
                    .filter(|map| map.has(file))
                    .for_each(|map| map.mark(piece.start, piece.start + piece.len));
            }
            marked += mapping.bytes();
        }
        let name = plan.file_name().unwrap_or_default().to_string_lossy();
        Ok(match marked {
            0 => format!("{name} has no replicas of the files shown"),
            bytes => format!("green bar: {} that {name} replicates", human_bytes(bytes)),
        })
    }

    fn heading(&self, stream: &dyn RecordStream) -> String {
        let file = || self.input.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let program = &stream.info().program;
        let program = || (!program.is_empty()).then(|| program.clone());
        self.title.clone().or_else(program).unwrap_or_else(file)
    }
}

fn pass(stream: &mut dyn RecordStream, mut each: impl FnMut(&Record)) -> Result<(), Failure> {
    let bar = bar();
    let mut count = 0u64;
    while let Some(record) = stream.next() {
        each(&record?);
        count += 1;
        if count.is_multiple_of(65_536) {
            tick(&bar, stream);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn name(files: &[(FileId, FileHeat)], names: &Names) -> String {
    match files {
        [(file, _)] => names.file_name(*file).unwrap_or_default().to_owned(),
        files => format!("{} files together", files.len()),
    }
}

/// Describes the plot in words.
fn notes(
    survey: &Survey,
    level: Level,
    shown: &[(FileId, FileHeat)],
    files: usize,
    stream: &dyn RecordStream,
) -> Vec<String> {
    let info = stream.info();
    let ranks = survey.ranks(level).max(info.processes);
    let seconds = survey.span(level).map_or(0, |(begin, end)| end.get() - begin.get()) as f64 / 1e9;
    let all = survey.files(level);
    let sum = |bytes: fn(&FileHeat) -> u64| {
        human_bytes(all.iter().fold(0u64, |sum, (_, heat)| sum.saturating_add(bytes(heat))))
    };
    let number = survey.operations(level);
    let mut notes = vec![format!(
        "{number} {} of {ranks} {} in {seconds:.3} s at {level}: {} read, {} written",
        if number == 1 { "request" } else { "requests" },
        if ranks == 1 { "rank" } else { "ranks" },
        sum(|heat| heat.read),
        sum(|heat| heat.written),
    )];
    if files > shown.len() {
        let part = shown.iter().map(|(_, heat)| heat.bytes() as f64).sum::<f64>();
        let whole = all.iter().map(|(_, heat)| heat.bytes() as f64).sum::<f64>();
        let percent = 100.0 * part / whole;
        notes.push(format!("shown: {} of {files} files, {percent:.0} % of the bytes", shown.len()));
    }
    if info.source == Source::DarshanCounters {
        notes.push("reconstructed from counters: offsets and times are estimates".to_owned());
    }
    notes
}
