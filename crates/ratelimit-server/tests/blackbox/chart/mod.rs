//! Charts, held to what the engine answers.

mod drawn;
mod svg;

use std::{fmt::Write as _, fs, path::Path};

use ratelimit_tests::redis::TestRedis;
use tempfile::TempDir;

use self::svg::SvgDocument;
use crate::{
    server::binary,
    simulate::{lines, simulate},
};

/// Where the plot of budgets lies, in tenths.
const LEFT: u64 = 640;
const WIDE: u64 = 6_760;
const TOP: u64 = 680;
const HIGH: u64 = 1_100;

/// Draws a trace into a file.
fn draw(path: &Path, args: &[&str], trace: &str) {
    let args = [args, &["--chart", path.to_str().unwrap()]].concat();
    let output = simulate(&args, trace);
    assert!(output.status.success(), "{output:?}");
}

/// Draws a trace, and gives the lines of all budgets.
fn charted(args: &[&str], trace: &str) -> (SvgDocument, Vec<Steps>) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("chart.svg");
    draw(&path, args, trace);
    let svg = SvgDocument::parse(&fs::read_to_string(path).unwrap());
    let paths = svg.with_class("budget");
    let steps = paths.map(|path| Steps::read(path.attribute("d")));
    let steps = steps.collect();
    (svg, steps)
}

/// A line that goes along and then up or down, as corners in tenths.
#[derive(Debug)]
struct Steps(Vec<(u64, u64)>);

impl Steps {
    fn read(path: &str) -> Steps {
        let (start, rest) = path.split_at(path.find('H').unwrap());
        let (x, y) = start[1..].split_once(' ').unwrap();
        let mut corners = vec![(tenths(x), tenths(y))];
        for step in rest.split('H').skip(1) {
            let (x, y) = step.split_once('V').unwrap_or((step, ""));
            let before = corners.last().unwrap().1;
            let y = if y.is_empty() { before } else { tenths(y) };
            corners.push((tenths(x), y));
        }
        Steps(corners)
    }

    /// How high the line stands at `x`, after all that happens there.
    fn y(&self, x: u64) -> u64 {
        let before = self.0.iter().take_while(|corner| corner.0 <= x);
        before.last().unwrap().1
    }
}

fn tenths(text: &str) -> u64 {
    let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
    whole.parse::<u64>().unwrap() * 10 + rest.parse::<u64>().unwrap()
}

#[test]
fn the_budget_between_hits_is_what_a_look_answers() {
    const FIRST: u64 = 500_000;
    const LAST: u64 = 8_900_000;
    const PERIOD: u64 = 2_000_000;
    for (limit, whole) in [
        ("token_bucket 10/s burst 20", 20),
        ("leaky_bucket 10/s queue 20", 20),
        ("fixed_window 8/2s", 8),
        ("sliding_window_log 8/2s", 8),
        ("sliding_window_counter 8/2s", 8),
    ] {
        let hits = [(FIRST, whole - 3), (900_000, 3), (LAST, 1)];
        let hits = hits.map(|(at, cost)| (at, format!("{{\"t\":{at}e-6,\"cost\":{cost}}}\n")));
        let trace: String = hits.iter().map(|(_, line)| line.as_str()).collect();
        let (_, drawn) = charted(&["--limit", limit], &trace);
        // The chart begins a twentieth before the first hit, and samples begin at 0.
        let end = LAST + PERIOD;
        let lead = (end - FIRST).div_ceil(20);
        let x = |moment: u64| LEFT + (moment + lead - FIRST) * WIDE / (end + lead - FIRST);
        let moments = (1..410_u64).map(|step| end * step / 410);

        let mut seen = String::new();
        let mut asked = Vec::new();
        let mut hits = hits.iter().peekable();
        for moment in moments {
            while let Some((_, line)) = hits.next_if(|(at, _)| *at <= moment) {
                seen.push_str(line);
                asked.push(None);
            }
            writeln!(seen, "{{\"t\":{moment}e-6,\"cost\":0}}").unwrap();
            asked.push(Some(moment));
        }

        let answers = lines(&simulate(&["--limit", limit], &seen));
        for (moment, answer) in asked.iter().zip(&answers) {
            let Some(moment) = moment else { continue };
            let left = answer["remaining"].as_u64().unwrap();
            let expected = TOP + HIGH - left * HIGH / whole;
            assert_eq!(
                drawn[0].y(x(*moment)),
                expected,
                "{limit} at {moment}: {left}"
            );
        }
    }
}

#[test]
fn a_refilling_budget_rises_between_hits() {
    let trace = "{\"t\":0,\"cost\":5}\n{\"t\":9,\"cost\":5}\n";

    let (_, drawn) = charted(&["--limit", "token_bucket 1/s burst 5"], trace);

    let first = LEFT + WIDE / 21 + 1;
    let between = |corner: &&(u64, u64)| corner.0 > first && corner.0 < LEFT + WIDE / 2;
    let heights = drawn[0].0.iter().filter(between).map(|corner| corner.1);
    let heights: Vec<u64> = heights.collect();
    assert_eq!(heights, [1_560, 1_340, 1_120, 900, 680], "{drawn:?}");
}

#[test]
fn keys_and_limits_have_lines_of_their_own() {
    let trace = "{\"t\":0,\"key\":\"a\"}\n{\"t\":1,\"key\":\"b\"}\n";

    let (svg, drawn) = charted(&["--limit", "2/s; fixed_window 9/h"], trace);

    assert_eq!(drawn.len(), 4);
    let texts: Vec<&str> = svg.texts().collect();
    for name in ["a: token_bucket 2/s", "b: fixed_window 9/h"] {
        assert!(texts.contains(&name), "{texts:?}");
    }
    let colours = svg.with_class("budget").map(|line| line.attribute("class"));
    let mut colours: Vec<&str> = colours.collect();
    colours.sort_unstable();
    colours.dedup();
    assert_eq!(colours.len(), 4, "a colour for each name");
}

#[test]
fn ticks_stand_at_round_numbers() {
    for (limit, hits) in [
        ("7/s", "13"),
        ("token_bucket 17/s burst 333", "700"),
        ("3/s", "77"),
        ("fixed_window 1234567/s", "9999"),
    ] {
        let made = ["--limit", limit, "--traffic", "poisson", "--hits", hits];
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("chart.svg");
        let chart = ["--chart", path.to_str().unwrap()];
        let drawn = binary().arg("simulate").args(made).args(chart).output();
        assert!(drawn.unwrap().status.success());
        let svg = SvgDocument::parse(&fs::read_to_string(path).unwrap());

        let texts: Vec<&str> = svg.texts().collect();
        let times = texts.iter().filter_map(|text| text.strip_suffix(" s"));
        assert_round(&times.map(micros).collect::<Vec<_>>());
        let place = |name| texts.iter().position(|text| *text == name).unwrap();
        let (remaining, hits) = (place("remaining"), place("hits"));
        let ends = (0..texts.len()).find(|place| texts[*place].ends_with(" s"));
        let units = |range: &[&str]| {
            let units = range.iter().map(|text| text.parse::<u64>().unwrap());
            units.collect::<Vec<_>>()
        };
        assert_round(&units(&texts[remaining + 1..hits]));
        assert_round(&units(&texts[hits + 1..ends.unwrap()]));
    }
}

/// A time in seconds, in microseconds.
fn micros(seconds: &str) -> u64 {
    let (whole, rest) = seconds.split_once('.').unwrap_or((seconds, ""));
    format!("{whole}{rest:0<6}").parse().unwrap()
}

/// Asserts that ticks are multiples of 1, 2 or 5 times a power of ten, without a gap, and few.
fn assert_round(ticks: &[u64]) {
    assert!((2..9).contains(&ticks.len()), "{ticks:?}");
    let step = ticks[1] - ticks[0];
    let mut digits = step;
    while digits.is_multiple_of(10) {
        digits /= 10;
    }
    assert!(matches!(digits, 1 | 2 | 5), "{ticks:?}");
    for (place, tick) in (0..).zip(ticks) {
        assert_eq!(*tick, ticks[0] + place * step, "{ticks:?}");
        assert!(tick.is_multiple_of(step), "{ticks:?}");
    }
}

#[tokio::test]
async fn both_stores_draw_the_same() {
    let redis = TestRedis::start().await;
    let mut trace = String::new();
    for place in 10..50 {
        let key = place % 3;
        writeln!(trace, "{{\"t\":0.{place},\"key\":\"{key}\"}}").unwrap();
    }
    let limits = ["--limit", "sliding_window_counter 9/s", "--limit", "5/s"];

    let (memory, _) = charted(&limits, &trace);
    let (shared, _) = charted(&[&limits[..], &["--store", redis.url()]].concat(), &trace);

    assert_eq!(memory, shared);
}

#[test]
fn the_bars_of_each_run_add_up_to_its_lines() {
    let mut trace = String::new();
    for place in 0..500 {
        writeln!(
            trace,
            "{{\"t\":{}.{},\"cost\":{}}}",
            place / 90,
            place % 10,
            1 + place % 7 / 6 * 30
        )
        .unwrap();
    }
    let limits = [
        "leaky_bucket 10/s queue 20",
        "fixed_window 25/s",
        "sliding_window_log 20/2s",
    ];
    let args: Vec<&str> = limits
        .iter()
        .flat_map(|limit| ["--limit", limit])
        .chain(["--throttle", "soft 20%"])
        .collect();

    let answers = lines(&simulate(&args, &trace));
    let (svg, _) = charted(&args, &trace);

    let mut counted = std::collections::BTreeMap::<String, u64>::new();
    for bar in svg.with_class("bin") {
        let title = svg.child_text(bar, "title").unwrap();
        let (_, counts) = title.split_once(" s: ").unwrap();
        let counts = counts
            .split(", ")
            .map(|count| count.split_once(' ').unwrap());
        let mut rows = 0;
        for (count, outcome) in counts {
            *counted.entry(outcome.to_owned()).or_default() += count.parse::<u64>().unwrap();
            rows += 1;
        }
        assert_eq!(svg.children(bar, "rect"), rows, "{title}");
    }
    let mut expected = std::collections::BTreeMap::<String, u64>::new();
    for line in &answers {
        let outcome = match line {
            line if line["allowed"] == false => "denied",
            line if line["over"] == true => "over",
            line if line["delayMicros"] == 0 => "allowed",
            _ => "delayed",
        };
        *expected.entry(outcome.to_owned()).or_default() += 1;
    }
    assert_eq!(answers.len(), 1_500);
    assert_eq!(counted, expected);
    assert_eq!(counted.len(), 4, "every outcome is drawn: {counted:?}");
}

#[test]
fn a_chart_is_named_and_described_for_those_who_do_not_see_it() {
    let (svg, _) = charted(
        &[
            "--limit",
            "fixed_window 2/s",
            "--limit",
            "leaky_bucket 2/s queue 3",
        ],
        "{\"t\":0}\n{\"t\":0}\n{\"t\":0}\n",
    );

    let root = &svg.elements()[0];
    assert_eq!(root.attribute("role"), "img");
    assert_eq!(root.attribute("aria-labelledby"), "t d");
    assert_eq!(
        svg.child_text(root, "title").unwrap(),
        "fixed_window 2/s and leaky_bucket 2/s queue 3"
    );
    let desc = svg.child_text(root, "desc").unwrap();
    assert!(
        desc.starts_with("fixed_window 2/s: 3 hits of 1 key in 0s: 2 allowed, ")
            && desc
                .contains("leaky_bucket 2/s queue 3: 3 hits of 1 key in 0s: 1 allowed, 2 delayed"),
        "{desc}"
    );
    let style = svg.child_text(root, "style").unwrap();
    assert!(style.contains("prefers-color-scheme:dark"));
}
