//! `brisk capture`: analyses a packet capture.

mod args;

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;
use brisk_capture::terminal::Slowest;
use brisk_capture::{
    CaptureError, Comparison, ConnectionReport, JsonLines, Output, Page, QuicReport, Recorder, Records,
    RingFiles, Rows, Sample, Secrets, Settings, Summary, analyse,
};
use brisk_compare::Interrupt;

use super::result_file::ResultFile;

pub(super) use args::Capture;

/// Runs the analysis. Exit code: 1 if the capture cannot be read to its end.
pub(crate) fn run(arguments: &Capture) -> ExitCode {
    match analysed(arguments) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(damage)) => {
            eprintln!("{damage}");
            ExitCode::FAILURE
        }
        // The reader of the output has seen enough, for example `head`.
        Err(error) if is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_closed(error: &anyhow::Error) -> bool {
    let source = match error.downcast_ref::<CaptureError>() {
        Some(CaptureError::Unwritable(source)) => Some(source),
        _ => error.downcast_ref::<io::Error>(),
    };
    source.is_some_and(|source| source.kind() == ErrorKind::BrokenPipe)
}

/// Width of tables.
const WIDTH: usize = 100;

/// The fault that ended the analysis of a file early.
fn damage(summary: Summary, name: &str) -> Option<String> {
    summary.damage.map(|damage| format!("{name}: {damage}"))
}

/// Compares two captures. Returns the damage of one of them.
fn compared(arguments: &Capture, other: &Path) -> anyhow::Result<Option<String>> {
    let secrets = secrets(arguments)?;
    let sample = |file: &Path| {
        let mut sample = Sample::default();
        let settings =
            Settings { limits: arguments.limits(), secrets: secrets.clone(), ..Settings::default() };
        let name = file.display().to_string();
        let summary = analyse(open(file)?, settings, &mut sample).map_err(|error| named(error, &name))?;
        anyhow::Ok((sample, summary))
    };
    let (file, names) = (PathBuf::from(arguments.name()), [arguments.name(), other.display().to_string()]);
    let ((one, first), (two, second)) = (sample(&file)?, sample(other)?);
    let comparison = Comparison::new(&one, &two);
    let text =
        if arguments.json { comparison.json() } else { comparison.text([&names[0], &names[1]], WIDTH) };
    io::stdout().write_all(text.as_bytes())?;
    Ok(damage(first, &names[0]).or(damage(second, &names[1])))
}

/// The key log of `arguments`. Reports lines that are not used on standard error.
fn secrets(arguments: &Capture) -> anyhow::Result<Secrets> {
    let mut secrets = Secrets::default();
    if let Some(file) = &arguments.keylog {
        let name = file.display();
        let skipped = secrets.add(&fs::read(file).with_context(|| format!("cannot read {name}"))?);
        if !skipped.is_empty() {
            eprintln!("{name}: {skipped}");
        }
    }
    Ok(secrets)
}

/// Returns the damage of the capture.
fn analysed(arguments: &Capture) -> anyhow::Result<Option<String>> {
    if let Some(other) = &arguments.compare {
        return compared(arguments, other);
    }
    let rows = match (arguments.ladder, &arguments.html) {
        // The page draws the slowest connections, which are known at the end only: rows are kept for all.
        (_, Some(_)) => Rows::All,
        (Some(number), None) => Rows::Of(number),
        (None, None) => Rows::None,
    };
    let mut records = Records::default();
    for file in &arguments.join {
        let name =
            file.file_name().map_or(file.display().to_string(), |name| name.to_string_lossy().into_owned());
        let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        records.add(&name, opened)?;
    }
    let settings = Settings { limits: arguments.limits(), secrets: secrets(arguments)?, records, rows };
    let (input, lost) = input(arguments)?;
    let damage = reported(arguments, input, settings)?;
    // After the report: the number grows until the end of the recording.
    let lost = lost.load(Ordering::Relaxed);
    if lost > 0 {
        eprintln!(
            "{lost} packets were lost, because the analysis was too slow: use --filter, or tcpdump -w FILE"
        );
    }
    Ok(damage)
}

/// Analyses the capture and prints the report. Returns its damage.
fn reported(arguments: &Capture, input: Box<dyn Read>, settings: Settings) -> anyhow::Result<Option<String>> {
    let name = arguments.name();
    if arguments.json {
        let mut lines = JsonLines::new(BufWriter::new(io::stdout().lock()));
        if arguments.packets {
            lines = lines.with_packets();
        }
        let summary = analyse(input, settings, &mut lines).map_err(|error| named(error, &name))?;
        lines.summary(&summary)?;
        return Ok(damage(summary, &name));
    }
    let page_file = arguments.html.as_deref().map(ResultFile::open).transpose()?;
    let picture_file = arguments.svg.as_deref().map(ResultFile::open).transpose()?;
    let most = usize::from(arguments.connections);
    let slowest = Slowest::new(most).with_ladder(arguments.ladder);
    let page = arguments.html.as_ref().map(|_| Page::new(most));
    let mut output = TextAndPage { slowest, page };
    let summary = analyse(input, settings, &mut output).map_err(|error| named(error, &name))?;
    let TextAndPage { slowest, page } = output;
    let text = match arguments.ladder {
        None => Ok(slowest.text(&summary)),
        Some(number) => slowest.ladder().map(str::to_owned).with_context(|| {
            let connections = summary.connections;
            format!("{name}: no connection {number}: it has {connections} connections, numbered from 0")
        }),
    };
    let printed = text.and_then(|text| Ok(io::stdout().write_all(text.as_bytes())?));
    if let (Some(file), Some(page)) = (page_file, page) {
        file.write_text(&page.text(&name, &summary))?;
    }
    if let (Some(file), Some(picture)) = (picture_file, slowest.picture()) {
        file.write_text(picture)?;
    }
    printed?;
    Ok(damage(summary, &name))
}

/// Receiver of text, and of a page if one is wanted.
struct TextAndPage {
    slowest: Slowest,
    page: Option<Page>,
}

impl Output for TextAndPage {
    fn connection(&mut self, report: &ConnectionReport) -> io::Result<()> {
        if let Some(page) = &mut self.page {
            page.connection(report)?;
        }
        self.slowest.connection(report)
    }

    fn quic(&mut self, report: &QuicReport) -> io::Result<()> {
        self.slowest.quic(report)
    }
}

/// The error with the name of the file; errors of the output keep their type for [`is_closed`].
fn named(error: CaptureError, name: &str) -> anyhow::Error {
    if matches!(error, CaptureError::Unwritable(_)) {
        return error.into();
    }
    anyhow::Error::new(error).context(name.to_owned())
}

/// The capture, or a recording from an interface until a signal; and the number of packets that a recording lost.
fn input(arguments: &Capture) -> anyhow::Result<(Box<dyn Read>, Arc<AtomicU32>)> {
    let Some(interface) = &arguments.interface else {
        return Ok((open(&PathBuf::from(arguments.name()))?, Arc::default()));
    };
    // Only for a recording, which the signal ends with a report. The analysis of a file ends at once.
    let interrupt = Interrupt::watch().context("cannot listen for signals")?;
    let files = arguments.write.clone().map(|file| RingFiles::new(file, arguments.ring));
    let filter = arguments.filter.clone().unwrap_or_default();
    let recorder = Recorder::start(interface, filter, files, move || interrupt.is_noted())?;
    eprintln!("recording from {interface}; SIGINT (Ctrl-C) ends the recording and prints the report");
    let lost = recorder.lost();
    Ok((Box::new(recorder), lost))
}

fn open(file: &Path) -> anyhow::Result<Box<dyn Read>> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    Ok(Box::new(opened))
}
