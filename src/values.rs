//! The settings that are checked against each other: which numbers a layout has room for.
//!
//! At the start that is what the server is given; later, what the next start will find. `ALTER SYSTEM` would otherwise accept, one
//! after the other, values that each go with those of the running server, and together with nothing.

use std::ffi::{CStr, CString, c_int};
use std::ptr;

use pgrx::pg_sys;
use snowflake_core::id::IdError;
use snowflake_core::identity::Identity;
use snowflake_core::layout::Layout;

use crate::configuration::{Given, Place, in_files};

/// The value of a number that is not set. A default of 0 on every server is the classic way to duplicate ids.
pub const NOT_SET: c_int = -1;

/// The layout where none is set.
pub const DEFAULT_LAYOUT: &CStr = c"snowflake";

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    Layout,
    BackupWorker,
    WorkerId,
    DatacenterId,
}

impl Setting {
    pub const ALL: [Self; 4] = [Self::Layout, Self::BackupWorker, Self::WorkerId, Self::DatacenterId];

    /// Its name in the configuration file.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::Layout => c"snowflake_id.layout",
            Self::BackupWorker => c"snowflake_id.backup_worker",
            Self::WorkerId => c"snowflake_id.worker_id",
            Self::DatacenterId => c"snowflake_id.datacenter_id",
        }
    }

    /// The setting of that name, in upper or lower case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.is_named(name))
    }

    fn is_named(self, name: &str) -> bool {
        name.as_bytes().eq_ignore_ascii_case(self.name().to_bytes())
    }

    /// Whether it is a number of servers, which has no fraction.
    pub fn is_number(self) -> bool {
        matches!(self, Self::WorkerId | Self::DatacenterId)
    }

    /// The settings, itself among them, whose values may have no place when this one changes.
    pub fn concerns(self) -> &'static [Self] {
        match self {
            Self::Layout => &[Self::BackupWorker, Self::WorkerId, Self::DatacenterId],
            Self::BackupWorker => &[Self::BackupWorker, Self::WorkerId],
            Self::WorkerId => &[Self::WorkerId],
            Self::DatacenterId => &[Self::DatacenterId],
        }
    }
}

/// A value for each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Values {
    /// `None` for a text that is none, with which nothing can be checked.
    pub layout: Option<Layout>,
    pub backup_worker: bool,
    pub worker_id: c_int,
    pub datacenter_id: c_int,
}

impl Default for Values {
    fn default() -> Self {
        let layout = Layout::parse(&DEFAULT_LAYOUT.to_string_lossy()).ok();
        Self { layout, backup_worker: false, worker_id: NOT_SET, datacenter_id: NOT_SET }
    }
}

impl Values {
    /// Checks a value against those that it has to go with.
    ///
    /// # Errors
    /// [`IdError::Part`], [`IdError::NoField`], [`IdError::NoBackup`].
    pub fn check(&self, setting: Setting) -> Result<(), IdError> {
        let Some(layout) = &self.layout else { return Ok(()) };
        let number = |value: c_int| (value != NOT_SET).then_some(i64::from(value));
        match setting {
            Setting::Layout => Ok(()),
            Setting::BackupWorker => Identity::worker_numbers(layout, self.backup_worker).map(drop),
            // With a backup worker where none can be, it is that one which is wrong.
            Setting::WorkerId if self.check(Setting::BackupWorker).is_err() => Ok(()),
            Setting::WorkerId => number(self.worker_id).map_or(Ok(()), |worker| {
                // The other number is whatever the layout wants.
                Identity::new(layout, Some(worker), Some(0), self.backup_worker).map(drop)
            }),
            Setting::DatacenterId => number(self.datacenter_id)
                .map_or(Ok(()), |datacenter| Identity::new(layout, Some(0), Some(datacenter), false).map(drop)),
        }
    }

    /// Whether a setting has another value here than there.
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
        }
    }

    /// The value of a setting, for people.
    pub fn shown(&self, setting: Setting) -> String {
        match setting {
            Setting::Layout => self.layout.as_ref().map(Layout::to_string).unwrap_or_default(),
            Setting::BackupWorker => if self.backup_worker { "on" } else { "off" }.to_owned(),
            Setting::WorkerId => self.worker_id.to_string(),
            Setting::DatacenterId => self.datacenter_id.to_string(),
        }
    }

    /// Takes a text for a setting as PostgreSQL does; one that it refuses counts as the default, since it is reported by itself.
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
        }
    }
}

/// A number, rounded if it has a fraction, as PostgreSQL reads a setting.
pub fn number(value: &CStr) -> Option<c_int> {
    let mut number = NOT_SET;
    // SAFETY: reads a text and writes a number; raises nothing, and wants no hint.
    let is_number = unsafe { pg_sys::parse_int(value.as_ptr(), &raw mut number, 0, ptr::null_mut()) };
    // A number below that is refused by its range.
    is_number.then_some(number).filter(|number| *number >= NOT_SET)
}

/// Whether PostgreSQL would round a text to get a whole number: `5.5`, but not `5.0`.
pub fn is_rounded(value: &CStr) -> bool {
    let mut end = ptr::null_mut();
    // SAFETY: reads a text, as PostgreSQL itself does where a number is not a whole one; the locale of numbers is always C.
    let exact = unsafe { libc::strtod(value.as_ptr(), &raw mut end) };
    exact.is_finite() && exact.fract() != 0.0
}

/// What the next start will find, as far as it can be known now: what the files say, and above that the command line.
#[derive(Debug)]
pub struct Next {
    given: Vec<Given>,
    /// What ALTER SYSTEM is about to write.
    change: Option<(Setting, CString)>,
    running: Values,
    /// Those of the running server's values that its command line gives: taken to be there at the next start, too.
    of_command_line: &'static [Setting],
}

impl Next {
    /// Reads the files. `None` if they cannot be read. Raises nothing.
    pub fn read(running: Values, of_command_line: &'static [Setting]) -> Option<Self> {
        Some(Self { given: in_files("snowflake_id.")?, change: None, running, of_command_line })
    }

    /// The same with a value that ALTER SYSTEM is about to write.
    pub fn with(mut self, setting: Setting, value: &CStr) -> Self {
        self.change = Some((setting, value.to_owned()));
        self
    }

    /// The same without the value that ALTER SYSTEM has written, or without any such value.
    pub fn without(mut self, setting: Option<Setting>) -> Self {
        let is_removed =
            |given: &Given| given.place.is_auto() && setting.is_none_or(|setting| setting.is_named(&given.name));
        self.given.retain(|given| !is_removed(given));
        self
    }

    /// What the files give for a setting: the last line counts.
    pub fn given(&self, setting: Setting) -> Option<&Given> {
        self.given.iter().rfind(|given| setting.is_named(&given.name))
    }

    /// Where the value of a setting stands, if there is one.
    pub fn place(&self, setting: Setting) -> Option<Place> {
        if self.of_command_line.contains(&setting) {
            return Some(Place::CommandLine);
        }
        self.given(setting).map(|given| given.place.clone())
    }

    /// The values.
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
