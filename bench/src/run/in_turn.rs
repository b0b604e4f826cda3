//! The floor of a fleet that is too large for two: it is measured after the control plane has ended.

use std::time::Duration;

use tokio::time::sleep;

use super::RunOptions;
use super::parts::{AFTER_CHANGES, AFTER_STORMS, MEMORY, NEW_PROXY, PAUSE};
use super::peer::{Both, CPU, Peer, change_rows, fresh_rows, memory_row, storm_rows};
use crate::measure::Scope;
use crate::report::{Row, count};
use crate::shape::{CHANGING, Shape};
use crate::target::{Contract, Program};

/// Measures the floor, and adds its figures to the rows of the control plane.
pub(super) async fn add_floor(
    options: &RunOptions,
    shape: Shape,
    contract: &Contract,
    rows: &mut [Row],
) -> anyhow::Result<()> {
    let program = Program::Floor(options.own_program.clone());
    let mut peer = Peer::start(program, contract, shape, options).await?;
    let (clients, patience, n) = (shape.proxies, options.patience, count(shape.proxies as u64));
    let at_once =
        Scope { cluster: CHANGING, clients, among: clients, pause: Duration::ZERO, patience };
    let memory = |work, peer: &Peer| {
        anyhow::Ok(memory_row(work, &Both { ours: peer.memory()?, floor: None }, n))
    };
    let fresh = Both { ours: peer.connect(at_once).await?, floor: None };
    let mut floor = fresh_rows(&fresh, n).to_vec();
    floor.push(memory(MEMORY, &peer)?);
    let scope = Scope { pause: PAUSE, ..at_once };
    peer.changes(scope, 2).await?;
    let changes = peer.changes(scope, options.events).await?;
    floor.extend(change_rows(&Both { ours: changes, floor: None }, n));
    floor.push(memory(AFTER_CHANGES, &peer)?);
    let mut storms = Vec::new();
    for _ in 0..options.storms {
        storms.push(peer.storm(at_once).await?);
    }
    floor.extend(storm_rows(&Both { ours: storms, floor: None }, n));
    sleep(options.steady).await;
    floor.push(memory(AFTER_STORMS, &peer)?);
    let cpu = floor.iter().find(|row| row.work == CPU).cloned();
    floor.extend(cpu.map(|row| Row { work: NEW_PROXY, ..row }));
    add(rows, &floor);
    Ok(())
}

/// Adds the figures of `floor` to the rows of the same work.
fn add(rows: &mut [Row], floor: &[Row]) {
    for row in rows {
        if let Some(of_floor) = floor.iter().find(|of_floor| of_floor.work == row.work) {
            *row = row.clone().floor(Some(of_floor.ours));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_is_added_to_rows_of_the_same_work() {
        let mut rows =
            [Row::new("a change", "ms", 3.0).at_most(1.2), Row::new("memory", "KB", 5.0)];
        add(&mut rows, &[Row::new("a change", "ms", 2.0), Row::new("a storm", "ms", 1.0)]);
        let [change, memory] = rows;
        assert_eq!((change.floor, change.met), (Some(2.0), Some(false)));
        assert_eq!(memory.floor, None);
    }
}
