//! The migration of a database of format 1, whose records have no tags: each record gets one.
//!
//! It is one transaction, so a database is entirely in one format.

use redb::{ReadableTable as _, TableHandle as _};

use crate::database::{ENDPOINTS, Failure, JOIN_RECORDS, META, POLICY, Store};
use crate::open::{CANARY, FORMAT, FORMAT_KEY, canary_of};

impl Store {
    /// Migrates a database of format 1 to the current format. The caller has verified, by the canary, that it
    /// has format 1.
    pub(crate) fn migrate(&self) -> Result<(), Failure> {
        let sealed = self.sealer.seal(META.name(), CANARY, canary_of(FORMAT))?;
        self.engine.write(|database| {
            let transaction = database.begin_write()?;
            for definition in [META, JOIN_RECORDS, POLICY, ENDPOINTS] {
                let mut table = transaction.open_table(definition)?;
                let mut tagged = Vec::new();
                for entry in table.iter()? {
                    let (key, value) = entry?;
                    let key = key.value();
                    // Versions without tags read the format too, so it has none; the canary is sealed.
                    if definition.name() != META.name() || ![FORMAT_KEY, CANARY].contains(&key) {
                        let name = definition.name();
                        let value = self.authenticator.tagged(name, key, value.value());
                        tagged.push((key.to_owned(), value));
                    }
                }
                for (key, value) in tagged {
                    table.insert(key.as_str(), value.as_slice())?;
                }
            }
            {
                let mut meta = transaction.open_table(META)?;
                meta.insert(FORMAT_KEY, FORMAT.to_string().as_bytes())?;
                meta.insert(CANARY, sealed.as_slice())?;
            }
            Ok(transaction.commit()?)
        })
    }
}
