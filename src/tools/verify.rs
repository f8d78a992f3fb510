//! `tessella verify`: verification of a store to its last byte.

use storage::audit::{self, Damage};

use super::progress::{Unit, bar};
use super::store_args::StoreArgs;
use super::{ToolError, print_report};

/// Flags of `verify`.
#[derive(Debug, Clone, clap::Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Reads everything, and prints each damage as it is found.
pub(super) async fn run(args: VerifyArgs) -> Result<(), ToolError> {
    let options = args.store.options()?;
    let bar = bar(Unit::Bytes, 0, "verify");
    let mut on_progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let mut printed = Ok(());
    let mut on_damage = |damage: Damage| {
        if printed.is_ok() {
            printed = bar.suspend(|| print_report(&line(&damage)));
        }
    };
    let verified =
        audit::verify(&args.store.storage_url, &options, &mut on_progress, &mut on_damage).await;
    bar.finish_and_clear();
    let verified = verified?;
    printed?;
    print_report(&format!(
        "verified {} files with {} entries of {} bytes: {} series and {} samples in sealed days, {} \
         records in the log; {} damages\n",
        verified.objects,
        verified.entries,
        verified.entry_bytes,
        verified.series,
        verified.samples,
        verified.log_records,
        verified.damages
    ))?;
    match verified.damages {
        0 => Ok(()),
        damages => Err(ToolError::Incomplete(format!("{damages} damages have been found"))),
    }
}

fn line(damage: &Damage) -> String {
    let object = damage.object.as_ref().map(|object| format!(" in {object}"));
    let key = damage.key.as_ref().map(|key| format!(" at key {}", key.trim_start_matches("key ")));
    let [object, key] = [object, key].map(Option::unwrap_or_default);
    format!("damage{object}{key}: {}\n", damage.detail)
}
