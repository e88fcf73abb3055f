//! The two programs as a user runs them.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use slogate_integration::load::{Report, read_mix};
use slogate_integration::sim::{Sim, SimConfig};

const SIM: &str = env!("CARGO_BIN_EXE_vllm-sim");
const LOAD: &str = env!("CARGO_BIN_EXE_slogate-load");

fn load(args: &[&str]) -> Output {
    Command::new(LOAD).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file that is removed with its test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("slogate-{}-{name}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A program that is killed with its test.
struct Running(Child);

impl Running {
    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits for its end.
    fn success(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn two_runs_against_the_simulator_are_compared_and_a_signal_ends_it() {
    let mut command = Command::new(SIM);
    command.args(["--port", "0", "--served-model-name", "m", "--enable-per-request-metrics"]);
    let mut sim = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(sim.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().rsplit(' ').next().unwrap();
    let (a, b) = (Scratch::new("a.json"), Scratch::new("b.json"));
    for (file, seed) in [(&a, "1"), (&b, "2")] {
        let mix =
            ["--mix", "name=short,prompt=10,output=2", "--mix", "name=long,prompt=500,stream=true"];
        let run = ["--target", url, "--rate", "50", "--duration", "500ms", "--seed", seed];
        let done = load(&[&run[..], &mix, &["--json", file.path(), "--records"]].concat());
        assert!(done.status.success(), "{}", text(&done.stderr));
        assert!(text(&done.stdout).contains("waited over 700 ms"), "{}", text(&done.stdout));
        let report = Report::read(&file.0).unwrap();
        assert_eq!(report.all.ok, report.all.sent);
        assert_eq!(report.records.len() as u64, report.all.sent);
    }
    let compared = load(&["compare", a.path(), b.path(), "--label", "without", "--label", "with"]);
    let shown = text(&compared.stdout);
    assert!(
        compared.status.success() && shown.contains("without") && shown.contains("long"),
        "{shown}"
    );
    sim.signal("TERM");
    assert!(sim.success());
}

#[test]
fn an_interrupt_prints_what_was_measured_so_far() {
    let sim = Sim::start(SimConfig::default()).unwrap();
    let mut command = Command::new(LOAD);
    command.args(["--target", &sim.url(), "--rate", "100", "--duration", "60s", "--quiet"]);
    let mut running =
        Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(30);
    while sim.stats().served < 10 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    running.signal("INT");
    assert!(running.success());
    let mut shown = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    assert!(shown.contains("stopped before its end") && shown.contains("answered"), "{shown}");
}

#[test]
fn what_cannot_work_is_refused_with_its_reason() {
    let sim = Sim::start(SimConfig::default()).unwrap();
    let url = sim.url();
    let cases: &[(&[&str], &str)] = &[
        (
            &["--target", "http://127.0.0.1:1", "--rate", "1"],
            "cannot connect to http://127.0.0.1:1",
        ),
        (&["--target", "ftp://x", "--rate", "1"], "only http://"),
        (&["--target", &url, "--rate", "0"], "rate"),
        (&["--target", &url, "--rate", "1", "--duration", "5"], "needs a unit"),
        (&["--target", &url, "--rate", "1", "--mix", "name=a,colour=red"], "colour"),
        (&["--target", &url, "--trace", "/nowhere"], "/nowhere"),
        (&["--target", &url], "--rate"),
        (&["--target", &url, "--rate", "1", "--json", "/nowhere/x"], "cannot write /nowhere/x"),
        (&["compare", "/nowhere", "/nowhere"], "/nowhere"),
    ];
    for (args, reason) in cases {
        let done = load(args);
        assert!(!done.status.success(), "{args:?}");
        assert!(text(&done.stderr).contains(reason), "{args:?}: {}", text(&done.stderr));
    }
    let port = sim.addr().port().to_string();
    let busy = Command::new(SIM).args(["--port", &port]).output().unwrap();
    assert!(!busy.status.success());
    assert!(text(&busy.stderr).contains("is the port in use?"), "{}", text(&busy.stderr));
}

#[test]
fn the_mix_of_the_demo_is_valid() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/demo-mix.json");
    let mix = read_mix(&path).unwrap();
    let share: f64 = mix.iter().map(|entry| entry.share).sum();
    assert!((share - 1.0).abs() < 1e-9);
}
