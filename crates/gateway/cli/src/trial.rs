//! `brisk import nginx --check`: the responses of nginx beside those of brisk with the imported configuration.

mod compared;
mod exchange;
mod processes;
mod recorder;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use brisk_certs::DevelopmentCa;
use brisk_import::{Stand, Trial, nginx_trial};
use brisk_tls::connector::{Connector, ConnectorSettings};
use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use compared::Differences;
use processes::{Processes, Started};

/// Attempts with other ports, if another program takes one of them before its server does.
const ATTEMPTS: usize = 3;

/// Differences that are printed in full.
const SHOWN: usize = 50;

/// Runs nginx and brisk on spare ports of 127.0.0.1, and prints the differences of their responses.
///
/// # Errors
///
/// A server that does not start, and differences without an explanation.
pub(crate) fn run(file: &Path) -> Result<()> {
    let file = std::path::absolute(file)?;
    let nginx = processes::nginx().context(
        "nginx is not installed, or not in PATH: install it on this machine, with the modules that the configuration uses, or leave out --check",
    )?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // The guards of the folder and the processes end them on each of these paths.
        let mut ended = signal(SignalKind::terminate())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        tokio::select! {
            result = check(&file, &nginx) => result,
            _ = ended.recv() => bail!("ended by SIGTERM"),
            _ = hung_up.recv() => bail!("the terminal has gone (SIGHUP)"),
            result = tokio::signal::ctrl_c() => { result?; bail!("interrupted") }
        }
    })
}

async fn check(file: &Path, nginx: &Path) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("brisk-check-").tempdir()?;
    let ca = DevelopmentCa::open_or_create(&folder.path().join("ca"), SystemTime::now())?;
    let own = &ca.servers()[0];
    let stand = Stand {
        folder: folder.path().to_owned(),
        chain: own.chain.clone(),
        key: own.key.clone(),
        source: file.parent().unwrap_or(Path::new("")).to_owned(),
    };
    for _ in 0..ATTEMPTS {
        let mut spare = Spare::default();
        let trial = nginx_trial(file, &stand, &mut || spare.port())?;
        drop(spare);
        if trial.requests.is_empty() {
            bail!("no server of the configuration listens at an IP address, so there is nothing to compare");
        }
        match start(&trial, nginx, &folder).await? {
            Started::Running(processes) => {
                let differences = compare(&trial).await?;
                drop(processes);
                return report(&trial, &differences);
            }
            Started::PortTaken => {}
        }
    }
    bail!("other programs took the spare ports {ATTEMPTS} times: run the check again")
}

async fn start(trial: &Trial, nginx: &Path, folder: &TempDir) -> Result<Started> {
    if !recorder::start(&trial.upstreams, &trial.forwarded) {
        return Ok(Started::PortTaken);
    }
    let conf = folder.path().join("nginx.conf");
    fs::write(&conf, &trial.nginx)?;
    let mut files = Vec::new();
    for (index, text) in trial.brisk.iter().enumerate() {
        let path = folder.path().join(format!("brisk-{}.toml", index + 1));
        fs::write(&path, text)?;
        files.push(path);
    }
    let ports = trial.listeners.iter().flat_map(|listener| [listener.nginx, listener.brisk]).collect();
    Processes::start(nginx, &conf, &files, folder.path(), ports).await
}

async fn compare(trial: &Trial) -> Result<Differences> {
    let settings = ConnectorSettings {
        protocols: vec!["http/1.1"],
        allows_missing_close_notify: true,
        // The certificate is for localhost, and the names are those of the configuration.
        accepts_any_server: true,
        ..ConnectorSettings::default()
    };
    let connector = Connector::new(&settings)?;
    let mut differences = Differences::default();
    for request in &trial.requests {
        let listener = &trial.listeners[request.listener];
        let tls = listener.has_tls.then_some(&connector);
        // One after the other: both servers may count the requests of a client.
        let theirs = exchange::send(request, listener.nginx, tls).await;
        let ours = exchange::send(request, listener.brisk, tls).await;
        differences.add(request, listener, theirs, ours);
    }
    Ok(differences)
}

fn report(trial: &Trial, differences: &Differences) -> Result<()> {
    for difference in differences.all.iter().take(SHOWN) {
        println!("{difference}");
    }
    let (all, count) = (trial.requests.len(), differences.all.len());
    if count > SHOWN {
        println!("and {} more", count - SHOWN);
    }
    let mut explained: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in &differences.explained {
        *explained.entry(reason).or_default() += 1;
    }
    for (reason, count) in &explained {
        println!("{count} responses differ because {reason}");
    }
    println!("{} of {all} requests have the same response", all - count - differences.explained.len());
    if count > 0 {
        bail!(
            "{count} responses differ: see above, and the report of `brisk import nginx` for their directives"
        );
    }
    Ok(())
}

/// Spare ports. They are bound until all are known, so that none is chosen twice.
#[derive(Default)]
struct Spare(Vec<TcpListener>);

impl Spare {
    fn port(&mut self) -> io::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        self.0.push(listener);
        Ok(port)
    }
}
