//! Addresses of this host's network interfaces.

use std::ffi::CStr;
use std::net::Ipv4Addr;
use std::ptr::null_mut;

/// Returns the first IPv4 address of the interface with this name, such as `ib0`.
pub fn address(name: &str) -> Option<Ipv4Addr> {
    let mut list: *mut libc::ifaddrs = null_mut();
    // SAFETY: the call stores a list in the local, or fails.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return None;
    }
    let mut found = None;
    let mut at = list;
    // SAFETY: the list and all that it points to live until freeifaddrs; its last entry has a null `ifa_next`. An
    // address of the family AF_INET is a sockaddr_in.
    unsafe {
        while let (None, Some(entry)) = (found, at.as_ref()) {
            let of_name = CStr::from_ptr(entry.ifa_name).to_bytes() == name.as_bytes();
            if let Some(address) = entry.ifa_addr.as_ref().filter(|_| of_name)
                && i32::from(address.sa_family) == libc::AF_INET
            {
                let address = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                found = Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)));
            }
            at = entry.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_have_addresses() {
        assert_eq!(address("no-such-interface"), None);
        let is_up = std::fs::read_to_string("/sys/class/net/lo/operstate").is_ok();
        if is_up && let Some(address) = address("lo") {
            assert_eq!(address, Ipv4Addr::LOCALHOST);
        }
    }
}
