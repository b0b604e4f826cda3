//! Chores of the project: `cargo xtask descriptors`, `cargo xtask docs`, `cargo xtask mutations`.

mod descriptors;
mod docs;
mod mutations;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("descriptors") => descriptors::write(),
        Some("docs") => docs::write(),
        Some("mutations") => mutations::run(&arguments.next().unwrap_or_default()),
        _ => anyhow::bail!(
            "usage: cargo xtask descriptors | docs | mutations [RULE or part of a test]"
        ),
    }
}
