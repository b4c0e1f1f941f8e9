//! Draws the charts and writes the tables again from the numbers of the last run: `cargo xtask bench --redraw`.

use std::{error::Error, fs, path::Path};

use ratelimit_bench::{FOLDER, PAGE, Report, fill};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(FOLDER);
    let numbers = fs::read(folder.join("bench.json"))?;
    let report = Report::from_json(&serde_json::from_slice(&numbers)?)?;
    for (name, text) in report.files() {
        fs::write(folder.join(name), text)?;
    }
    let page = fs::read_to_string(PAGE)?;
    fs::write(PAGE, fill(&page, &report)?)?;
    println!("written to {FOLDER} and {PAGE}");
    Ok(())
}
