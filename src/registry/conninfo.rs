//! Connection strings and URIs of libpq: whether one is right, and what of it may be shown.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::libpq::OptionArray;

/// What a view may show. Everything else may hold a secret, or be of no help.
const SHOWN: [&CStr; 6] = [c"service", c"host", c"hostaddr", c"port", c"dbname", c"user"];

/// Checks a connection string or URI, without connecting.
///
/// # Errors
/// That it is none. libpq's own words are not shown, because they repeat parts of the string, which
/// may be parts of a password.
///
/// ```
/// use snowflake_registry::check_conninfo;
///
/// assert_eq!(check_conninfo("host=a,b dbname=ids target_session_attrs=read-write"), Ok(()));
/// assert_eq!(check_conninfo("hots=a"), Err("not a connection string of libpq".to_owned()));
/// ```
pub fn check_conninfo(conninfo: &str) -> Result<(), String> {
    Options::parse(conninfo).map(|_| ())
}

/// Returns what of a connection string may be shown: service, hosts, ports, database and user.
/// Returns an empty text for a string that libpq refuses.
///
/// ```
/// use snowflake_registry::without_secrets;
///
/// assert_eq!(without_secrets("postgresql://me:secret@a:5433/ids"), "host=a port=5433 dbname=ids user=me");
/// ```
pub fn without_secrets(conninfo: &str) -> String {
    let options = Options::parse(conninfo).unwrap_or_default();
    let shown = SHOWN.iter().filter_map(|keyword| Some((keyword, options.get(keyword)?)));
    shown
        .map(|(keyword, value)| format!("{}={}", keyword.to_string_lossy(), quoted(&value.to_string_lossy())))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns whether a connection string has a password in it: the server's, or that of a key. A
/// string that libpq refuses counts as one without.
///
/// ```
/// use snowflake_registry::has_password;
///
/// assert!(has_password("postgresql://me:secret@a/ids") && has_password("host=a sslpassword=secret"));
/// assert!(!has_password("host=a passfile=/etc/ids.pgpass"));
/// ```
pub fn has_password(conninfo: &str) -> bool {
    let options = Options::parse(conninfo).unwrap_or_default();
    [c"password", c"sslpassword"].iter().any(|keyword| options.get(keyword).is_some_and(|value| !value.is_empty()))
}

/// Returns a value as a connection string has it.
fn quoted(value: &str) -> String {
    let is_plain = !value.is_empty() && !value.contains([' ', '\'', '\\', '\t', '\n', '\r']);
    if is_plain { value.to_owned() } else { format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'")) }
}

/// The options of a connection: keywords and values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options(Vec<(CString, CString)>);

impl Options {
    /// Takes the options from a connection string or URI.
    pub fn parse(conninfo: &str) -> Result<Self, String> {
        let array = CString::new(conninfo).ok().and_then(|conninfo| OptionArray::parse(&conninfo));
        array.map(|array| Self(array.options())).ok_or_else(|| "not a connection string of libpq".to_owned())
    }

    /// Adds what this crate wants unless the string says something else.
    pub fn with_defaults(mut self) -> Self {
        // The fallback, because the environment or the service file may also name one.
        for (keyword, value) in [(c"fallback_application_name", c"snowflake_id"), (c"client_encoding", c"UTF8")] {
            if self.get(keyword).is_none() {
                self.0.push((keyword.to_owned(), value.to_owned()));
            }
        }
        self
    }

    /// Keeps libpq from a password file that it does not use because others may read it. It would
    /// write a warning to the log at each try. Returns what to say instead if the connection fails.
    pub fn without_ignored_passfile(mut self) -> (Self, Option<String>) {
        if self.get(c"password").is_some_and(|password| !password.is_empty()) {
            return (self, None);
        }
        let completed = Self(OptionArray::completed(self.iter()).options());
        let named = completed.get(c"passfile").filter(|path| !path.is_empty());
        let path = match named {
            Some(path) => PathBuf::from(OsStr::from_bytes(path.to_bytes())),
            None => env::home_dir().unwrap_or_default().join(".pgpass"),
        };
        let note = ignored_passfile(&path);
        if note.is_some() {
            // The last value counts. There is no file below a file.
            self.0.retain(|(keyword, _)| keyword.as_c_str() != c"passfile");
            self.0.push((c"passfile".to_owned(), c"/dev/null/".to_owned()));
        }
        (self, note)
    }

    /// Replaces the hosts.
    pub fn with_hosts(&self, hosts: &[Host]) -> Self {
        let mut options = self.clone();
        options.0.retain(|(keyword, _)| ![c"host", c"hostaddr", c"port"].contains(&keyword.as_c_str()));
        let list = |part: fn(&Host) -> &str| {
            CString::new(hosts.iter().map(part).collect::<Vec<_>>().join(",")).expect("libpq's texts have no NUL")
        };
        options.0.push((c"host".to_owned(), list(|host| &host.name)));
        if hosts.iter().any(|host| !host.address.is_empty()) {
            options.0.push((c"hostaddr".to_owned(), list(|host| &host.address)));
        }
        options.0.push((c"port".to_owned(), list(|host| &host.port)));
        options
    }

    /// Accepts a standby as well.
    pub fn with_any_session(mut self) -> Self {
        // The last value counts.
        self.0.push((c"target_session_attrs".to_owned(), c"any".to_owned()));
        self
    }

    /// Returns keywords and values.
    pub fn iter(&self) -> impl Iterator<Item = (&CStr, &CStr)> {
        self.0.iter().map(|(keyword, value)| (keyword.as_c_str(), value.as_c_str()))
    }

    fn get(&self, keyword: &CStr) -> Option<&CStr> {
        self.iter().find(|(name, _)| *name == keyword).map(|(_, value)| value)
    }
}

/// Says why libpq does not use a password file, if it is there and libpq would warn of it.
fn ignored_passfile(path: &Path) -> Option<String> {
    let file = fs::metadata(path).ok()?;
    let shown = path.display();
    if !file.is_file() {
        return Some(format!("Password file \"{shown}\" is not used, because it is not a plain file."));
    }
    let mode = file.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then(|| {
        format!("Password file \"{shown}\" is not used, because its mode is {mode:04o}; run chmod 0600 on it.")
    })
}

/// One of the hosts that a connection string names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub name: String,
    pub address: String,
    pub port: String,
}

impl Host {
    /// Returns the hosts in libpq's options, which are lists with commas.
    pub fn list(options: &[(CString, CString)]) -> Vec<Self> {
        let options = Options(options.to_vec());
        let list = |keyword| -> Vec<String> {
            let text = options.get(keyword).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
            if text.is_empty() { Vec::new() } else { text.split(',').map(str::to_owned).collect() }
        };
        let (names, addresses, ports) = (list(c"host"), list(c"hostaddr"), list(c"port"));
        let port = |number: usize| {
            // One port serves all hosts.
            let port = if ports.len() == 1 { ports.first() } else { ports.get(number) };
            port.filter(|port| !port.is_empty()).cloned().unwrap_or_else(|| "5432".to_owned())
        };
        let of = |list: &[String], number: usize| list.get(number).cloned().unwrap_or_default();
        (0..names.len().max(addresses.len()))
            .map(|number| {
                let address = of(&addresses, number);
                let name = of(&names, number);
                // What libpq reports of a host that has an address only.
                let name = if name.is_empty() { address.clone() } else { name };
                Self { name, address, port: port(number) }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_a_wrong_string_is_repeated() {
        // Where a password may stand, and what is left of it if it is not quoted.
        for conninfo in [
            "host=a password=my s3cret",
            "host=a password=my s3cret=x",
            "host=a password=my 's3cret",
            "s3cret",
            "s3cret\0",
            "pasword=s3cret",
            "host=a s3cret=x",
            "password='s3cret",
            "postgresql://u:s3cret%@a/ids",
            "postgresql://u:%s3cret@a/ids",
            "postgresql://u:s3cret@[a/ids",
            "postgresql://u:x@a/ids?password=s3cret=s3cret",
            "postgresql://u:x@a/ids?s3cret",
            "postgresql://u:x@a/ids?password=my&s3cret=1",
            "postgresql://u:x@[::1]s3cret/ids",
        ] {
            let error = check_conninfo(conninfo).unwrap_err();
            assert!(!error.contains("s3cret"), "{conninfo}: {error}");
        }
        for conninfo in ["", "service=fleet", "postgresql://a,b:5433/ids?target_session_attrs=read-write"] {
            assert_eq!(check_conninfo(conninfo), Ok(()));
        }
    }

    #[test]
    fn a_password_file_that_others_may_read_is_kept_from_libpq() {
        let path = env::temp_dir().join(format!("snowflake_registry-pgpass-{}", std::process::id()));
        fs::write(&path, "*:*:*:*:word").unwrap();
        let conninfo = format!("host=a sslmode=disable passfile='{}'", path.display());
        let passfile = |mode, conninfo: &str| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let (options, note) = Options::parse(conninfo).unwrap().without_ignored_passfile();
            assert_eq!(options.get(c"sslmode"), Some(c"disable"));
            (options.get(c"passfile").unwrap().to_owned(), note)
        };
        let own = CString::new(path.as_os_str().as_bytes()).unwrap();
        assert_eq!(passfile(0o600, &conninfo), (own.clone(), None));
        // With a password in the string, libpq does not look at it.
        assert_eq!(passfile(0o644, &format!("{conninfo} password=word")), (own, None));
        let (other, note) = passfile(0o644, &conninfo);
        assert!(note.unwrap().ends_with("because its mode is 0644; run chmod 0600 on it."));
        assert!(fs::metadata(OsStr::from_bytes(other.to_bytes())).is_err());
        fs::remove_file(&path).unwrap();
        // What a service file and the environment say is found, too: here that there is no service.
        let completed = OptionArray::completed([(c"host", c"a"), (c"passfile", c"/x")].into_iter());
        let completed = Options(completed.options());
        assert_eq!((completed.get(c"host"), completed.get(c"passfile")), (Some(c"a"), Some(c"/x")));
    }

    #[test]
    fn no_secret_is_shown() {
        let secrets = "password=s1 sslpassword=s2 passfile=/s3 sslkey=/s4 options='-c s5=1' sslrootcert=s6";
        let shown = without_secrets(&format!("host=a,b port=1,2 {secrets} dbname='my ids' user='o''x' service=x"));
        // Two quotes in a row end one quoted part and begin another one.
        assert_eq!(shown, "");
        let shown = without_secrets(&format!("host=a,b port=1,2 {secrets} dbname='my ids' user='o\\'x' service=x"));
        assert_eq!(shown, "service=x host=a,b port=1,2 dbname='my ids' user='o\\'x'");
        assert_eq!(without_secrets("postgresql://u:s@h/d?sslpassword=s&password=s"), "host=h dbname=d user=u");
        assert_eq!(without_secrets("password=s nonsense"), "");
        // It is a connection string again.
        assert_eq!(without_secrets(&shown), shown);
    }

    #[test]
    fn hosts_and_ports_belong_together() {
        let hosts = |conninfo: &str| Host::list(&Options::parse(conninfo).unwrap().0);
        let host = |name: &str, address: &str, port: &str| Host {
            name: name.to_owned(),
            address: address.to_owned(),
            port: port.to_owned(),
        };
        assert_eq!(hosts("host=a,b port=1,2"), [host("a", "", "1"), host("b", "", "2")]);
        assert_eq!(hosts("host=a,b port=1"), [host("a", "", "1"), host("b", "", "1")]);
        assert_eq!(hosts("host=a,b port=,2"), [host("a", "", "5432"), host("b", "", "2")]);
        assert_eq!(
            hosts("hostaddr=127.0.0.1,::1"),
            [host("127.0.0.1", "127.0.0.1", "5432"), host("::1", "::1", "5432")]
        );
        assert_eq!(hosts("dbname=ids"), []);
        let options = Options::parse("host=a,b port=1,2 user=me").unwrap().with_hosts(&[host("b", "", "2")]);
        let options: Vec<_> = options.iter().collect();
        assert_eq!(options, [(c"user", c"me"), (c"host", c"b"), (c"port", c"2")]);
    }
}
