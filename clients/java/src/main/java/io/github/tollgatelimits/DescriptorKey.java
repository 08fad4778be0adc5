package io.github.tollgatelimits;

import java.util.List;

/** Keys of maps that hold something for each domain and list of descriptors. */
final class DescriptorKey {
  private DescriptorKey() {}

  /** Returns a text that is the same for equal descriptors only. Hits are not part of it. */
  static String of(String domain, List<Descriptor> descriptors) {
    StringBuilder key = new StringBuilder(64);
    append(key, domain);
    for (Descriptor descriptor : descriptors) {
      key.append(descriptor.entries().size()).append('[');
      for (Descriptor.Entry entry : descriptor.entries()) {
        append(key, entry.key());
        append(key, entry.value());
      }
    }
    return key.toString();
  }

  /** Lengths in front of the texts keep neighbours apart. */
  private static void append(StringBuilder key, String text) {
    key.append(text.length()).append(':').append(text);
  }

  /** Returns the bytes of all keys and values in UTF-8. */
  static int bytes(List<Descriptor> descriptors) {
    int bytes = 0;
    for (Descriptor descriptor : descriptors) {
      for (Descriptor.Entry entry : descriptor.entries()) {
        bytes += utf8Length(entry.key()) + utf8Length(entry.value());
      }
    }
    return bytes;
  }

  private static int utf8Length(String text) {
    int bytes = 0;
    for (int at = 0; at < text.length(); at++) {
      char unit = text.charAt(at);
      if (unit < 0x80) {
        bytes += 1;
      } else if (unit < 0x800 || Character.isSurrogate(unit)) {
        // A surrogate is half of a character of four bytes.
        bytes += 2;
      } else {
        bytes += 3;
      }
    }
    return bytes;
  }
}
