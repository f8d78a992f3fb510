//! Verification of SSTs and WAL files, block by block.

use super::check;
use super::verify::{Damage, OnDamage, Verified};
use super::{OnProgress, Opened};
use crate::lsm::{ObjectEntry, Objects};

/// Reads all SSTs and WAL files, and verifies each key and value. Returns the approximate number of
/// bytes.
pub(super) async fn verify(
    objects: &Objects,
    mut opened: Option<&mut Opened>,
    verified: &mut Verified,
    on_progress: OnProgress<'_>,
    on_damage: OnDamage<'_>,
) -> u64 {
    let listed = match objects.list().await {
        Ok(listed) => listed,
        Err(error) => {
            on_damage(Damage::of_object("the list of files", &error));
            return 0;
        }
    };
    let total: u64 = listed.iter().map(|object| object.bytes).sum();
    let mut done = 0;
    for object in listed {
        let name = object.name.clone();
        let mut take = |entry: ObjectEntry| match entry {
            ObjectEntry::Value(key, bytes) => {
                verified.entries += 1;
                verified.entry_bytes += (key.len() + bytes.len()) as u64;
                if let Err(error) = check::entry(&key, &bytes) {
                    on_damage(Damage::of_key(&name, &key, &error));
                }
            }
            ObjectEntry::Deletion => verified.entries += 1,
            ObjectEntry::Damage(place, error) => {
                on_damage(Damage::of_object(&format!("{name}, {place}"), &error));
            }
        };
        objects.read(&object, &mut take).await;
        if let Some(opened) = &mut opened {
            opened.keep().await;
        }
        verified.objects += 1;
        done += object.bytes;
        // All data is read twice: here by file, then through the LSM.
        on_progress(done, 2 * total);
    }
    total
}
