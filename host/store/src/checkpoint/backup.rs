//! The store's files at one instant, for a backup.
//!
//! The instant is chosen on the database's thread, which alone changes the tables and marks
//! segments as checkpointed. The tables are [frozen](crate::tables::frozen) in their file, and all
//! journal segments that are not in the tables yet are included, up to the journal's present end. A
//! crash at this instant would leave the same files, and they are opened in the same way. After
//! that no caller waits: the journal continues in other files, and the tables in their write-ahead
//! log.

use gristmill_core::backup::{BackupError, BackupFile, DATABASE, JOURNAL, SECRETS_KEY};

use crate::checkpoint::database::Database;

type Files = Result<Vec<BackupFile>, BackupError>;

impl Database {
    /// Opens the files of a backup. A fault of one of them is returned to the caller, and does not
    /// end the store.
    pub(crate) fn backup(&self, with_secrets_key: bool) -> rusqlite::Result<Files> {
        if self.needs_several_keys() && !with_secrets_key {
            return Ok(Err(BackupError::Rotating));
        }
        Ok(match self.db.freeze()? {
            None => Err(BackupError::Busy),
            Some(Err(error)) => Err(error.into()),
            Some(Ok(tables)) => {
                let tables = BackupFile {
                    name: DATABASE.to_owned(),
                    bytes: tables.size(),
                    content: Box::new(tables),
                };
                self.with_journal(tables, with_secrets_key)
            }
        })
    }

    fn with_journal(&self, tables: BackupFile, with_secrets_key: bool) -> Files {
        let mut files = vec![tables];
        files.extend(self.journal.copy()?.into_iter().map(|segment| BackupFile {
            name: format!("{JOURNAL}/{}", segment.name()),
            bytes: segment.size(),
            content: Box::new(segment),
        }));
        if with_secrets_key {
            let file = std::fs::File::open(self.db.seal.file())?;
            let bytes = file.metadata()?.len();
            files.push(BackupFile { name: SECRETS_KEY.to_owned(), bytes, content: Box::new(file) });
        }
        Ok(files)
    }
}
