//! Runs the measurements and writes their results: `cargo xtask bench`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Instant,
};

use ratelimit_bench::{
    Circumstances, RedisServer, Report, Row, fill,
    suite::{Plan, SLOW_SUITES, SUITES},
};

const FOLDER: &str = "docs/bench";
const PAGE: &str = "docs/explain/performance.md";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let Some(options) = Options::read(&args) else {
        eprintln!("error: unknown option\n  help: see `cargo xtask bench --help`");
        return ExitCode::from(2);
    };

    let report = options.measure().rounded();
    let goals: Vec<bool> = report.rows.iter().filter_map(Row::is_met).collect();
    let met = goals.iter().filter(|is_met| **is_met).count();
    println!(
        "\n{}\n{met} of {} goals are met",
        report.table(),
        goals.len()
    );
    if let Some(folder) = options.folder() {
        write(&folder, &report);
    }
    if options.fills_page() {
        let page = fs::read_to_string(PAGE).expect("run from the top of the repository");
        let page = fill(&page, &report).unwrap_or_else(|missing| panic!("{PAGE}: {missing}"));
        fs::write(PAGE, page).expect("the page can be written");
    }
    ExitCode::SUCCESS
}

struct Options {
    plan: Plan,
    out: Option<PathBuf>,
    only: Option<String>,
}

impl Options {
    fn read(args: &[String]) -> Option<Options> {
        let mut options = Options {
            plan: Plan::Full,
            out: None,
            only: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => options.plan = Plan::Quick,
                "--out" => options.out = Some(args.next()?.into()),
                "--only" => options.only = Some(args.next()?.clone()),
                _ => return None,
            }
        }
        Some(options)
    }

    /// Where the numbers go: what is not complete does not replace what is.
    fn folder(&self) -> Option<PathBuf> {
        match (&self.out, &self.only, self.plan) {
            (Some(folder), _, _) => Some(folder.clone()),
            (None, Some(_), _) => None,
            (None, None, Plan::Quick) => Some("target/bench".into()),
            (None, None, Plan::Full) => Some(FOLDER.into()),
        }
    }

    fn fills_page(&self) -> bool {
        self.out.is_none() && self.only.is_none() && self.plan == Plan::Full
    }

    fn measure(&self) -> Report {
        let mut report = Report {
            circumstances: circumstances(self.plan),
            rows: Vec::new(),
            charts: Vec::new(),
        };
        for (name, suite) in SUITES {
            if self
                .only
                .as_ref()
                .is_some_and(|only| !name.contains(only.as_str()))
            {
                continue;
            }
            if self.plan == Plan::Quick && self.only.is_none() && SLOW_SUITES.contains(&name) {
                eprintln!("{name} is left out by --quick");
                continue;
            }
            let started = Instant::now();
            eprint!("{name} ...");
            suite(self.plan, &mut report);
            eprintln!(" {:.0} s", started.elapsed().as_secs_f64());
        }
        report
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
