package tollgate

import (
	"crypto/sha256"
	"encoding/binary"
)

const (
	// maxKeyBytes bounds the keys and values of a check that is remembered or leased.
	maxKeyBytes = 1024
	// keyBuffer is the size of most keys.
	keyBuffer = 256
)

// checkKey appends the key of a check to an empty buffer. It returns nil if the check is too large.
func checkKey(buffer []byte, domain string, descriptors []Descriptor) []byte {
	if descriptorBytes(descriptors) > maxKeyBytes {
		return nil
	}
	return appendDescriptorKey(buffer, domain, descriptors)
}

// appendDescriptorKey appends a text that only the same domain and descriptors have. Hits are not
// part of it.
func appendDescriptorKey(key []byte, domain string, descriptors []Descriptor) []byte {
	key = appendText(key, domain)
	for i := range descriptors {
		key = binary.AppendUvarint(key, uint64(len(descriptors[i].Entries)))
		for _, entry := range descriptors[i].Entries {
			key = appendText(appendText(key, entry.Key), entry.Value)
		}
	}
	return key
}

// appendText appends a text after its length, so that no two lists of texts are equal.
func appendText(key []byte, text string) []byte {
	return append(binary.AppendUvarint(key, uint64(len(text))), text...)
}

// descriptorDigest returns a key of a fixed size, for descriptors of any size.
func descriptorDigest(domain string, descriptors []Descriptor) [sha256.Size]byte {
	return sha256.Sum256(appendDescriptorKey(nil, domain, descriptors))
}

// descriptorBytes returns the bytes of all keys and values.
func descriptorBytes(descriptors []Descriptor) int {
	size := 0
	for i := range descriptors {
		for _, entry := range descriptors[i].Entries {
			size += len(entry.Key) + len(entry.Value)
		}
	}
	return size
}
