//! Chores of the project: `cargo xtask descriptors`.

mod descriptors;

fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("descriptors") => descriptors::write(),
        _ => anyhow::bail!("usage: cargo xtask descriptors"),
    }
}
