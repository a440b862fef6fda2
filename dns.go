package cart

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sort"
	"strings"
)

// resolver looks names up for the pools that are made.
var resolver = &net.Resolver{}

// findAddresses looks up the addresses of the source's name.
func findAddresses(ctx context.Context, resolve *net.Resolver, src *source) ([]server, error) {
	addresses, err := resolve.LookupHost(ctx, src.dns.Hostname())
	if err != nil {
		return nil, errors.New("lookup of " + src.dns.Hostname() + " failed: " + err.Error())
	}
	found := []server{}
	for _, address := range addresses {
		found = addServer(found, serverAt(src, address))
	}
	sort.Slice(found, func(i, j int) bool { return found[i].id < found[j].id })
	return found, nil
}

// serverAt returns the replica at one of the addresses.
func serverAt(src *source, address string) server {
	base := &url.URL{Scheme: src.dns.Scheme, Host: address, Path: src.dns.Path, RawPath: src.dns.RawPath}
	if strings.Contains(address, ":") {
		base.Host = "[" + address + "]"
	}
	if port := src.dns.Port(); port != "" {
		base.Host = net.JoinHostPort(address, port)
	}
	return server{id: addressID(base), base: base, headers: src.lookFor}
}
