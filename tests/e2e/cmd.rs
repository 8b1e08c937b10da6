//! Pinned text of the command line: the cases in tests/cmd. `TRYCMD=overwrite cargo test` writes them
//! anew.

#[test]
fn the_command_line_says_what_it_said() {
    trycmd::TestCases::new().case("tests/cmd/*.toml");
}
