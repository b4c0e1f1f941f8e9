//! The command line of the server.

use std::{
    env,
    future::Future,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use clap::{CommandFactory as _, Parser as _};
use mimalloc::MiMalloc;
use ratelimit_server::{Cli, CliError, Command};

/// A check over REST allocates 36 times. The allocator of the system takes 4,500 instructions more for it, of 44,300.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Time at the end for tasks that block, such as a lookup of a host name. They are given up then.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let mut cli = Cli::parse();
    if let Some(program) = env::args_os().next() {
        cli.settings = cli.settings.called_as(Path::new(&program));
    }
    match cli.settings.clone().with_policies_of_environment() {
        Ok(settings) => cli.settings = settings,
        Err(why) => return exit_code(Err(why)),
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let done = match &cli.command {
        None => {
            drop(out);
            // A server that ends early has failed, whatever the reason is.
            return match block_on(ratelimit_server::run(&cli.settings)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(why) => failure(&why),
            };
        }
        Some(Command::CheckConfig(command)) => command.run(&cli.settings, &mut out),
        Some(Command::ClientKey(command)) => command.run(&mut out),
        Some(Command::Completions(command)) => command.run(Cli::command(), &mut out),
        Some(Command::Health(command)) => block_on(command.run(&mut out)),
        Some(Command::Simulate(command)) => block_on_one_thread(command.run(&mut out)),
        Some(_) => Ok(()),
    };
    exit_code(done.and_then(|()| out.flush().map_err(CliError::from)))
}

fn block_on(work: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    let runtime = tokio::runtime::Runtime::new()?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(BLOCKING_TIMEOUT);
    done
}

/// Runs the simulator, whose virtual time goes on when all tasks wait.
fn block_on_one_thread(work: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work)
}

fn exit_code(done: Result<(), CliError>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe, as `head` does.
        Err(why) if why.is_broken_pipe() => ExitCode::SUCCESS,
        Err(why) => failure(&why),
    }
}

fn failure(why: &CliError) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::FAILURE
}
