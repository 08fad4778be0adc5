package request

import (
	"net/netip"
	"strconv"
	"strings"
)

func (r *Rules) trusts(address netip.Addr) bool {
	for _, prefix := range r.trusted {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// parsePrefix parses an address or a CIDR block. A block of IPv4-mapped IPv6 addresses is one of
// IPv4.
func parsePrefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, err
		}
		address = address.Unmap().WithZone("")
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	const mappedBits = 96
	if prefix.Addr().Is4In6() && prefix.Bits() >= mappedBits {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-mappedBits)
	}
	return prefix.Masked(), nil
}

// parseAddress parses an address, with or without a port. It drops port and zone, and returns an
// IPv4-mapped IPv6 address as IPv4.
func parseAddress(text string) (netip.Addr, bool) {
	host := text
	switch {
	case strings.HasPrefix(text, "["):
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return netip.Addr{}, false
		}
		host = text[1:end]
		if rest := text[end+1:]; rest != "" && !isPort(rest) || !strings.Contains(host, ":") {
			return netip.Addr{}, false
		}
	case strings.Count(text, ":") == 1:
		colon := strings.IndexByte(text, ':')
		host = text[:colon]
		if !isPort(text[colon:]) {
			return netip.Addr{}, false
		}
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return address.WithZone("").Unmap(), true
}

// isPort returns whether the text is a colon and a port.
func isPort(text string) bool {
	if text[0] != ':' {
		return false
	}
	_, err := strconv.ParseUint(text[1:], 10, 16)
	return err == nil
}
