//! A report as JSON.

use serde_json::{Value, json};

use super::{Chart, Goal, Report, Row, Spread};

impl Report {
    /// All numbers, for programs.
    pub fn json(&self) -> Value {
        json!({
            "command": self.circumstances.command,
            "cores": self.circumstances.cores,
            "redis": self.circumstances.redis,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "charts": self.charts.iter().map(chart).collect::<Vec<_>>(),
        })
    }
}

fn row(row: &Row) -> Value {
    json!({
        "what": row.what,
        "unit": row.unit,
        "ours": spread(row.ours),
        "peer": row.peer.as_ref().map(|peer| json!({
            "name": peer.name,
            "number": spread(peer.number),
        })),
        "ratio": row.ratio().map(rounded),
        "goal": row.goal.map(goal),
        "met": row.is_met(),
    })
}

fn spread(spread: Spread) -> Value {
    json!({
        "low": rounded(spread.low),
        "median": rounded(spread.median),
        "high": rounded(spread.high),
    })
}

fn goal(goal: Goal) -> Value {
    match goal {
        Goal::AtMost(most) => json!({ "at_most": most }),
        Goal::AtLeast(least) => json!({ "at_least": least }),
        Goal::RatioAtMost(most) => json!({ "ratio_at_most": most }),
        Goal::RatioAtLeast(least) => json!({ "ratio_at_least": least }),
    }
}

fn chart(chart: &Chart) -> Value {
    let series = chart.series.iter().map(|series| {
        let points = series.points.iter();
        let points: Vec<[f64; 2]> = points.map(|(x, y)| [*x, rounded(*y)]).collect();
        json!({ "name": series.name, "points": points })
    });
    json!({
        "name": chart.name,
        "title": chart.title,
        "x": chart.x,
        "y": chart.y,
        "series": series.collect::<Vec<_>>(),
    })
}

/// A thousandth is finer than anything measured here.
fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}
