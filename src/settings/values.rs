//! Checks the settings that depend on each other: which numbers a layout has room for.
//!
//! At the start, they are checked as the server gets them; later, as the next start will find them.
//! Otherwise `ALTER SYSTEM` would accept values one after the other that each fit the running
//! server, but not each other. Nothing here raises an error. `guc.rs` reports what is wrong, and
//! `configuration.rs` reads the files.

use std::ffi::{CStr, CString, c_int};
use std::ptr;

use pgrx::pg_sys;
use snowflake_core::id::IdError;
use snowflake_core::identity::Identity;
use snowflake_core::layout::{Field, Layout};

use crate::error::Error;
use crate::settings::configuration::{Given, SettingPlace, in_files};

/// The value of a number that is not set. A default of 0 would duplicate ids, because every server
/// would have it.
pub const NOT_SET: c_int = -1;

/// The default layout.
pub const DEFAULT_LAYOUT: &CStr = c"snowflake";

/// A setting that is checked against others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    Layout,
    BackupWorker,
    WorkerId,
    DatacenterId,
    Registry,
}

impl Setting {
    pub const ALL: [Self; 5] = [Self::Layout, Self::BackupWorker, Self::WorkerId, Self::DatacenterId, Self::Registry];

    /// Returns its name in the configuration file.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::Layout => c"snowflake_id.layout",
            Self::BackupWorker => c"snowflake_id.backup_worker",
            Self::WorkerId => c"snowflake_id.worker_id",
            Self::DatacenterId => c"snowflake_id.datacenter_id",
            Self::Registry => c"snowflake_id.registry",
        }
    }

    /// Returns the setting of that name, in upper or lower case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.is_named(name))
    }

    fn is_named(self, name: &str) -> bool {
        name.as_bytes().eq_ignore_ascii_case(self.name().to_bytes())
    }

    /// Returns whether it is a server's number, which must be whole.
    pub fn is_number(self) -> bool {
        matches!(self, Self::WorkerId | Self::DatacenterId)
    }

    /// Returns the settings, itself included, whose values may no longer fit when this one changes.
    pub fn concerns(self) -> &'static [Self] {
        match self {
            Self::Layout => &[Self::BackupWorker, Self::WorkerId, Self::DatacenterId, Self::Registry],
            Self::BackupWorker => &[Self::BackupWorker, Self::WorkerId],
            Self::WorkerId => &[Self::WorkerId, Self::Registry],
            Self::DatacenterId => &[Self::DatacenterId],
            Self::Registry => &[Self::Registry],
        }
    }
}

/// A value for each setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Values {
    /// `None` for a text that is not a layout. Nothing can be checked then.
    pub layout: Option<Layout>,
    pub backup_worker: bool,
    pub worker_id: c_int,
    pub datacenter_id: c_int,
    /// Whether there is a registry, from which the worker number is leased.
    pub has_registry: bool,
}

impl Default for Values {
    fn default() -> Self {
        let layout = Layout::parse(&DEFAULT_LAYOUT.to_string_lossy()).ok();
        Self { layout, backup_worker: false, worker_id: NOT_SET, datacenter_id: NOT_SET, has_registry: false }
    }
}

impl Values {
    /// Checks a value against those that it depends on.
    ///
    /// # Errors
    /// [`IdError::Part`], [`IdError::NoField`], [`IdError::NoBackup`], [`Error::TypedAndLeased`],
    /// [`Error::NothingToLease`].
    pub fn check(&self, setting: Setting) -> Result<(), Error> {
        let Some(layout) = &self.layout else { return Ok(()) };
        match setting {
            Setting::Registry if !self.has_registry => Ok(()),
            Setting::Registry if layout.max_of(Field::Worker).is_none() => Err(Error::NothingToLease(*layout)),
            Setting::Registry if self.worker_id != NOT_SET => Err(Error::TypedAndLeased(self.worker_id)),
            _ => Ok(self.check_number(layout, setting)?),
        }
    }

    fn check_number(&self, layout: &Layout, setting: Setting) -> Result<(), IdError> {
        let number = |value: c_int| (value != NOT_SET).then_some(i64::from(value));
        match setting {
            Setting::Layout | Setting::Registry => Ok(()),
            Setting::BackupWorker => Identity::worker_numbers(layout, self.backup_worker).map(drop),
            // Where a backup worker is not possible, that setting is wrong, and not this one.
            Setting::WorkerId if self.check(Setting::BackupWorker).is_err() => Ok(()),
            Setting::WorkerId => number(self.worker_id).map_or(Ok(()), |worker| {
                // The other number is 0, which suits every layout.
                Identity::new(layout, Some(worker), Some(0), self.backup_worker).map(drop)
            }),
            Setting::DatacenterId => number(self.datacenter_id)
                .map_or(Ok(()), |datacenter| Identity::new(layout, Some(0), Some(datacenter), false).map(drop)),
        }
    }

    /// Returns whether a setting has different values here and in `other`.
    pub fn differs(&self, other: &Self, setting: Setting) -> bool {
        let mut copy = *self;
        copy.copy(other, setting);
        copy != *self
    }

    fn copy(&mut self, other: &Self, setting: Setting) {
        match setting {
            Setting::Layout => self.layout = other.layout,
            Setting::BackupWorker => self.backup_worker = other.backup_worker,
            Setting::WorkerId => self.worker_id = other.worker_id,
            Setting::DatacenterId => self.datacenter_id = other.datacenter_id,
            Setting::Registry => self.has_registry = other.has_registry,
        }
    }

    /// Formats the value of a setting for people.
    pub fn shown(&self, setting: Setting) -> String {
        match setting {
            Setting::Layout => self.layout.as_ref().map(Layout::to_string).unwrap_or_default(),
            Setting::BackupWorker => if self.backup_worker { "on" } else { "off" }.to_owned(),
            Setting::WorkerId => self.worker_id.to_string(),
            Setting::DatacenterId => self.datacenter_id.to_string(),
            // The text itself may hold a password.
            Setting::Registry => if self.has_registry { "set" } else { "not set" }.to_owned(),
        }
    }

    /// Sets a setting from a text as PostgreSQL does. A text that it refuses counts as the default,
    /// because it is reported elsewhere.
    fn set(&mut self, setting: Setting, value: &CStr) {
        match setting {
            Setting::Layout => self.layout = Layout::parse(&value.to_string_lossy()).ok(),
            Setting::BackupWorker => {
                // SAFETY: reads a text and writes a bool; raises nothing.
                if !unsafe { pg_sys::parse_bool(value.as_ptr(), &raw mut self.backup_worker) } {
                    self.backup_worker = false;
                }
            }
            Setting::WorkerId => self.worker_id = number(value).unwrap_or(NOT_SET),
            Setting::DatacenterId => self.datacenter_id = number(value).unwrap_or(NOT_SET),
            Setting::Registry => self.has_registry = !value.is_empty(),
        }
    }
}

/// Parses a number as PostgreSQL reads a setting: rounded if it has a fraction.
pub fn number(value: &CStr) -> Option<c_int> {
    let mut number = NOT_SET;
    // SAFETY: reads a text and writes a number; raises nothing. A hint is not asked for.
    let is_number = unsafe { pg_sys::parse_int(value.as_ptr(), &raw mut number, 0, ptr::null_mut()) };
    // PostgreSQL refuses a number below this range.
    is_number.then_some(number).filter(|number| *number >= NOT_SET)
}

/// Returns whether PostgreSQL would round a text to a whole number: `5.5`, but not `5.0`.
pub fn is_rounded(value: &CStr) -> bool {
    let mut end = ptr::null_mut();
    // SAFETY: reads a text, as PostgreSQL does for a number that is not whole. The locale of
    // numbers is always C.
    let exact = unsafe { libc::strtod(value.as_ptr(), &raw mut end) };
    exact.is_finite() && exact.fract() != 0.0
}

/// What the next start will find, as far as that is known now: the command line, and below it the
/// files.
#[derive(Debug)]
pub struct Next {
    given: Vec<Given>,
    /// The value that ALTER SYSTEM is about to write.
    change: Option<(Setting, CString)>,
    running: Values,
    /// The settings that the running server's command line gives. The next start is assumed to give
    /// them, too.
    of_command_line: &'static [Setting],
}

impl Next {
    /// Reads the files; `None` if they cannot be read. Raises nothing.
    pub fn read(running: Values, of_command_line: &'static [Setting]) -> Option<Self> {
        Some(Self { given: in_files("snowflake_id.")?, change: None, running, of_command_line })
    }

    /// Adds a value that ALTER SYSTEM is about to write.
    pub fn with(mut self, setting: Setting, value: &CStr) -> Self {
        self.change = Some((setting, value.to_owned()));
        self
    }

    /// Removes the value that ALTER SYSTEM has written for a setting, or all such values.
    pub fn without(mut self, setting: Option<Setting>) -> Self {
        let is_removed =
            |given: &Given| given.place.is_auto() && setting.is_none_or(|setting| setting.is_named(&given.name));
        self.given.retain(|given| !is_removed(given));
        self
    }

    /// Returns what the files give for a setting: the last line counts.
    pub fn given(&self, setting: Setting) -> Option<&Given> {
        self.given.iter().rfind(|given| setting.is_named(&given.name))
    }

    /// Returns where the value of a setting was given, if anywhere.
    pub fn place(&self, setting: Setting) -> Option<SettingPlace> {
        if self.of_command_line.contains(&setting) {
            return Some(SettingPlace::CommandLine);
        }
        self.given(setting).map(|given| given.place.clone())
    }

    /// Returns the values.
    pub fn values(&self) -> Values {
        let mut values = Values::default();
        for setting in Setting::ALL {
            match (&self.change, self.given(setting)) {
                _ if self.of_command_line.contains(&setting) => values.copy(&self.running, setting),
                (Some((changed, value)), _) if *changed == setting => values.set(setting, value),
                (_, Some(given)) => values.set(setting, &given.value),
                (_, None) => (),
            }
        }
        values
    }
}
