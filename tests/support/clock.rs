//! A wall clock that a test sets for a program that it starts.
//!
//! It never touches the machine's clock, nor the program's other clocks.

use std::path::{Path, PathBuf};
use std::process::Command as Program;

use fs_err as fs;
use tokio::process::Command;

/// A wall clock with an offset from the machine's clock.
#[derive(Debug)]
pub struct SkewedClock {
    library: PathBuf,
    file: PathBuf,
}

impl SkewedClock {
    /// Creates a clock without an offset, with its files in `folder`.
    ///
    /// # Panics
    ///
    /// Without a C compiler, which building this project needs anyway.
    pub fn new(folder: &Path) -> Self {
        let library = folder.join("clock.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("support/clock.c");
        let mut compiler = Program::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
        let output = compiler.output().expect("`cc` is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let clock = Self { library, file: folder.join("skew") };
        clock.set(0);
        clock
    }

    /// Sets the offset in seconds; negative values are in the past.
    pub fn set(&self, seconds: i64) {
        let part = self.file.with_extension("part");
        fs::write(&part, seconds.to_string()).unwrap();
        fs::rename(&part, &self.file).unwrap();
    }

    /// Applies the clock to a program that is about to start.
    pub fn give_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("SKEW_FILE", &self.file);
    }
}
