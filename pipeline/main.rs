//! The `potable` command.

fn main() -> std::process::ExitCode {
    potable::cli::main()
}
