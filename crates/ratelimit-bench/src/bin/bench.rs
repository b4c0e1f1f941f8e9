//! Runs the measurements and writes their results: `cargo xtask bench`.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Instant,
};

use ratelimit_bench::{
    Circumstances, FOLDER, PAGE, RedisServer, Report, Row, fill,
    suite::{Plan, SLOW_SUITES, SUITES},
};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let options = match Options::read(&args) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("error: {why}\n  help: see `cargo xtask bench --help`");
            return ExitCode::from(2);
        }
    };

    let (report, failed) = options.measure();
    let report = report.rounded();
    let goals: Vec<bool> = report.rows.iter().filter_map(Row::is_met).collect();
    let met = goals.iter().filter(|is_met| **is_met).count();
    println!(
        "\n{}\n{met} of {} goals are met",
        report.table(),
        goals.len()
    );
    let is_whole = options.is_whole() && failed.is_empty();
    if let Some(folder) = options.folder(is_whole) {
        write(&folder, &report);
    }
    if is_whole {
        let page = fs::read_to_string(PAGE).expect("run from the top of the repository");
        let page = fill(&page, &report).unwrap_or_else(|missing| panic!("{PAGE}: {missing}"));
        fs::write(PAGE, page).expect("the page can be written");
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: no numbers of {}: see above", failed.join(", "));
    ExitCode::FAILURE
}

struct Options {
    plan: Plan,
    out: Option<PathBuf>,
    only: Option<String>,
}

impl Options {
    fn read(args: &[String]) -> Result<Options, String> {
        let mut options = Options {
            plan: Plan::Full,
            out: None,
            only: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => options.plan = Plan::Quick,
                "--out" => options.out = Some(args.next().ok_or("--out needs a folder")?.into()),
                "--only" => {
                    options.only = Some(args.next().ok_or("--only needs a word")?.clone());
                }
                _ => return Err(format!("unknown option {arg}")),
            }
        }
        if SUITES.iter().all(|(name, _)| !options.names(name)) {
            let names = SUITES.map(|(name, _)| name).join(", ");
            return Err(format!("--only names none of {names}"));
        }
        Ok(options)
    }

    /// Whether `--only` names a suite, or is not given.
    fn names(&self, suite: &str) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|word| suite.contains(word.as_str()))
    }

    /// Where the numbers go: a report that is not whole does not replace one that is.
    fn folder(&self, is_whole: bool) -> Option<PathBuf> {
        match (&self.out, &self.only) {
            (Some(folder), _) => Some(folder.clone()),
            (None, Some(_)) => None,
            (None, None) if is_whole => Some(FOLDER.into()),
            (None, None) => Some("target/bench".into()),
        }
    }

    /// Whether all suites are measured for the pages.
    fn is_whole(&self) -> bool {
        self.out.is_none() && self.only.is_none() && self.plan == Plan::Full
    }

    /// Runs the suites. Returns the names of those that failed too, of which the report has nothing.
    fn measure(&self) -> (Report, Vec<&'static str>) {
        let mut report = Report {
            circumstances: circumstances(self.plan),
            rows: Vec::new(),
            charts: Vec::new(),
        };
        let mut failed = Vec::new();
        for (name, suite) in SUITES {
            if !self.names(name) {
                continue;
            }
            if self.plan == Plan::Quick && self.only.is_none() && SLOW_SUITES.contains(&name) {
                eprintln!("{name} is left out by --quick");
                continue;
            }
            let started = Instant::now();
            eprint!("{name} ...");
            let (rows, charts) = (report.rows.len(), report.charts.len());
            // The numbers of the other suites took minutes, and must not be lost.
            if catch_unwind(AssertUnwindSafe(|| suite(self.plan, &mut report))).is_err() {
                report.rows.truncate(rows);
                report.charts.truncate(charts);
                failed.push(name);
            }
            eprintln!(" {:.0} s", started.elapsed().as_secs_f64());
        }
        (report, failed)
    }
}

fn circumstances(plan: Plan) -> Circumstances {
    let command = match plan {
        Plan::Quick => "cargo xtask bench --quick",
        Plan::Full => "cargo xtask bench",
    };
    Circumstances {
        cores: thread::available_parallelism().map_or(1, usize::from),
        redis: RedisServer::start(&[]).version(),
        command: command.to_owned(),
    }
}

fn write(folder: &Path, report: &Report) {
    fs::create_dir_all(folder).expect("the folder can be made");
    for (name, text) in report.files() {
        fs::write(folder.join(name), text).expect("the folder can be written");
    }
    println!("written to {}", folder.display());
}
