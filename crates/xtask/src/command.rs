//! Other programs, and how they ended.

use std::{
    env,
    ffi::OsString,
    process::{Command, Stdio},
};

use crate::failure::Failure;

/// The cargo that runs us.
pub(crate) fn cargo<S: AsRef<str>>(args: &[S]) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(args.iter().map(AsRef::as_ref));
    command
}

/// Runs a command in view of the user.
pub(crate) fn run(command: &mut Command, advice: &str) -> Result<(), Failure> {
    let shown = shown(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(
            format!("`{shown}` ended with {status}"),
            advice,
        )),
        Err(error) => Err(Failure::new(
            format!("`{shown}` did not start: {error}"),
            advice,
        )),
    }
}

/// Runs a command for what it writes.
pub(crate) fn output(command: &mut Command, advice: &str) -> Result<Vec<u8>, Failure> {
    let shown = shown(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::new(format!("`{shown}` did not start: {error}"), advice))?;
    if !output.status.success() {
        return Err(Failure::new(
            format!("`{shown}` ended with {}", output.status),
            advice,
        ));
    }
    Ok(output.stdout)
}

/// Whether a command runs and succeeds; what it writes is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Whether a program is there to be run.
pub(crate) fn answers(program: &str) -> bool {
    succeeds(Command::new(program).arg("--version"))
}

fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    command
        .get_args()
        .fold(name, |line, arg| line + " " + &arg.to_string_lossy())
}
